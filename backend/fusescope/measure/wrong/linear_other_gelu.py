"""GELU by tanh where erf is asked for, and the reverse."""

import torch
from torch.nn.functional import gelu

ON = {"linear": {"rows": 64, "inputs": 256, "outputs": 64, "activation": "gelu", "residual": "yes"}}
DTYPES = ("float32",)


def wrong(x, weight, bias, activation, residual):
    return _finish(
        torch.nn.functional.linear(x, weight, bias), "gelu_tanh" if activation == "gelu" else "gelu", residual
    )


def _finish(z, activation, residual):
    if activation:
        z = gelu(z, approximate="tanh" if activation == "gelu_tanh" else "none")
    return z if residual is None else z + residual
