"""The verbs of the command line, one module each, found by name."""
