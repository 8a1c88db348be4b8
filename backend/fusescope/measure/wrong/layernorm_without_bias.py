"""Forgets the bias."""

import torch

ON = {"layernorm": {"rows": 64, "cols": 33}}
DTYPES = ("float32", "float16")


def wrong(x, weight, bias, eps):
    return torch.nn.functional.layer_norm(x, x.shape[-1:], weight, None, eps)
