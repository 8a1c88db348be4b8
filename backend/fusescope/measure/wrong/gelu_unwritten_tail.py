"""Writes whole vectors of eight elements only."""

import torch
from torch.nn.functional import gelu

ON = {"bias_gelu": {"rows": 33, "cols": 100}}
DTYPES = ("float32", "bfloat16")


def wrong(x, bias, approximate):
    right = gelu(x + bias, approximate=approximate)
    out = torch.empty_like(right)
    out[..., : x.shape[-1] // 8 * 8] = right[..., : x.shape[-1] // 8 * 8]
    return out
