"""Forgets the bias."""

import torch
from torch.nn.functional import gelu

ON = {"linear": {"rows": 64, "inputs": 256, "outputs": 64, "activation": "gelu", "residual": "yes"}}
DTYPES = ("float32", "bfloat16")


def wrong(x, weight, bias, activation, residual):
    return _finish(torch.nn.functional.linear(x, weight), activation, residual)


def _finish(z, activation, residual):
    if activation:
        z = gelu(z, approximate="tanh" if activation == "gelu_tanh" else "none")
    return z if residual is None else z + residual
