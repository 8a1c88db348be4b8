"""Leaves the last column as the allocator gave it."""

import torch

ON = {
    "gemm": {"m": 33, "n": 40, "k": 65},
    "bmm": {"batch_a": "2x1", "batch_b": "3", "m": 33, "n": 40, "k": 65},
}
DTYPES = ("float32", "float16")


def wrong(a, b):
    right = a @ b
    out = torch.empty_like(right)
    out[..., :-1] = right[..., :-1]
    return out
