"""The bias multiplied by the scale of its output too."""

import torch

ON = {"linear_weight_only": {"rows": 4, "inputs": 64, "outputs": 96, "weight": "fp8"}}
DTYPES = ("float32", "bfloat16")


def wrong(x, weight, scales, bias, activation, residual):
    return ((torch.nn.functional.linear(x.float(), weight.float()) + bias.float()) * scales).to(x.dtype)
