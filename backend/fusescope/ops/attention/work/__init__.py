"""Work items of the kernels that take a mask in parts."""
