"""Charts of fusion schemes, sweeps, searches and the cost model."""
