"""Correctness before timing: comparison with the reference, poisoned memory, the speed-of-light alarm."""
