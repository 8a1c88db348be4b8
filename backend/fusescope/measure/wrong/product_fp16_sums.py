"""Partial sums rounded to fp16 every 16 terms, as a kernel with 16-bit accumulators has them."""

import torch

ON = {
    "gemm": {"m": 64, "n": 64, "k": 256},
    "bmm": {"batch_a": "2", "batch_b": "2", "m": 64, "n": 64, "k": 256},
}
DTYPES = ("float32", "float16", "bfloat16")


def wrong(a, b):
    total = torch.zeros(
        (*torch.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1]), dtype=torch.float16
    )
    for p in range(0, a.shape[-1], 16):
        total = (total.float() + a[..., p : p + 16].float() @ b[..., p : p + 16, :].float()).half()
    return total.to(a.dtype)
