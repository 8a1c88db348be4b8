"""The Kernels page."""
