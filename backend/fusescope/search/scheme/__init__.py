"""What a fusion scheme is: the layer's 15 operators, its setting, and the Python module generated for it.
Torch-free."""
