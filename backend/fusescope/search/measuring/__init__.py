"""Measuring fusion schemes: segments compiled, checked and timed, whole schemes sampled in turn."""
