"""Runs against each other: whether they may be compared, their records side by side, what got slower."""
