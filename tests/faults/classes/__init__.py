"""One file for each class of faults."""
