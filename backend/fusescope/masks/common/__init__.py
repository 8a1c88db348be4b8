"""What all masks share: the Mask class, its parameters, binding to a size, dense matrices, files, draws."""
