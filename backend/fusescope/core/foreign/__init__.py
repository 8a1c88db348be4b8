"""Runs that a stranger may have made: their text for terminals and spreadsheets, and the code that they
name."""
