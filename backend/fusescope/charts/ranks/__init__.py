"""Charts of a profile of many ranks."""
