"""Charts of masks: pictures, tiles, balance, storage, gain, score sparsity."""
