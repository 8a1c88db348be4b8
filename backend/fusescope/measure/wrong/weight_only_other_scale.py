"""Each output by the scale of its neighbour."""

import torch

ON = {"linear_weight_only": {"rows": 4, "inputs": 64, "outputs": 96}}
DTYPES = ("float32", "float16")


def wrong(x, weight, scales, bias, activation, residual):
    wide = (weight.float() * scales.roll(1)[:, None]).to(x.dtype)
    return torch.nn.functional.linear(x, wide, bias)
