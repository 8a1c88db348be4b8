"""Leaves the last row as the allocator gave it."""

import torch

ON = {"softmax": {"rows": 64, "cols": 1000}}
DTYPES = ("float32", "float16")


def wrong(x):
    right = torch.softmax(x, -1)
    out = torch.empty_like(right)
    out[:-1] = right[:-1]
    return out
