"""Reading Chrome traces of any size into tables."""
