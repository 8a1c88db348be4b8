"""Runs against the first of them: bars, tables and sentences."""
