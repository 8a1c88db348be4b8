"""Dense operators of the ladder: add, GEMM, batched GEMM, softmax, LayerNorm."""
