"""The result of a run, as Kernels, Models and Runs show it."""
