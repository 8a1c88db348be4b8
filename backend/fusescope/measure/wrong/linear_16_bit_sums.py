"""Parts of the sum over k kept in the storage type."""

import torch
from torch.nn.functional import gelu

ON = {"linear": {"rows": 64, "inputs": 256, "outputs": 64, "activation": "gelu", "residual": "yes"}}
DTYPES = ("bfloat16",)


def wrong(x, weight, bias, activation, residual):
    total = torch.zeros(x.shape[0], weight.shape[0], dtype=x.dtype)
    for k in range(x.shape[1]):
        total = total + x[:, k, None] * weight[:, k]
    return _finish(total + bias, activation, residual)


def _finish(z, activation, residual):
    if activation:
        z = gelu(z, approximate="tanh" if activation == "gelu_tanh" else "none")
    return z if residual is None else z + residual
