"""Samplers of one call: eager, CUDA graph, and what really runs in it."""
