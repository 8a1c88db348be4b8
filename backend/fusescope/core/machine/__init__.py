"""Facts about this machine: GPUs, compilers, architectures."""
