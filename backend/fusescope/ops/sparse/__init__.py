"""Operators on sparse matrices in CSR and BSR: SDDMM, SpMM, sparse softmax, graph attention."""
