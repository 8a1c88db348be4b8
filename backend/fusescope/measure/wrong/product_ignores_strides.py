"""Reads its operands as if they were contiguous, as raw pointers do."""

import torch

ON = {
    "gemm": {"m": 33, "n": 40, "k": 65},
    "bmm": {"batch_a": "2x1", "batch_b": "3", "m": 33, "n": 40, "k": 65},
}
DTYPES = ("float32", "float16")


def wrong(a, b):
    return _from_pointer(a) @ _from_pointer(b)


def _from_pointer(t):
    return torch.as_strided(t, t.shape, torch.empty(t.shape, device="meta").stride())
