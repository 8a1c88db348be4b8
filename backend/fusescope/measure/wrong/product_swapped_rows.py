"""Rows g and g + 8 of every sixteen exchanged: a wrong fragment layout."""

import torch

ON = {
    "gemm": {"m": 33, "n": 40, "k": 65},
    "bmm": {"batch_a": "2x1", "batch_b": "3", "m": 33, "n": 40, "k": 65},
}
DTYPES = ("float32", "float16")


def wrong(a, b):
    out = a @ b
    rows = torch.arange(out.shape[-2])
    partner = rows ^ 8
    return out[..., torch.where(partner < out.shape[-2], partner, rows), :]
