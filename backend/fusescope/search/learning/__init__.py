"""Learning a cost model from measured schemes, and searching with it. Torch-free."""
