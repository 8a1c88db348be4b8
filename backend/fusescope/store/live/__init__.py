"""What a live run shows of its worker, and what is said of one that fell silent."""
