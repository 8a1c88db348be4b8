"""Traces of many ranks read as one profile."""
