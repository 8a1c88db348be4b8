"""Leaves the last elements as the allocator gave them."""

import torch

ON = {"add": {"n": 1000}}
DTYPES = ("float32", "float16")


def wrong(a, b):
    out = torch.empty_like(a)
    n = a.numel() - 3
    torch.add(a[:n], b[:n], out=out[:n])
    return out
