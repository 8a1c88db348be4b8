"""Occupancy, roofline, statistics, accuracy figures, hardware peaks with sources, estimates: numbers in,
numbers out; no torch."""
