"""Jobs over many schemes: exhaustive sweeps, guided searches, merging of parallel parts."""
