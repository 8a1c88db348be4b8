"""LayerNorm that divides by the root mean square and leaves the mean in."""

import torch

ON = {"norm_linear": {"rows": 4, "inputs": 64, "outputs": 96}}
DTYPES = ("float32", "float16")


def wrong(x, scale, shift, weight, bias, activation, eps):
    normed = torch.nn.functional.rms_norm(x, x.shape[-1:], scale, eps) + shift
    return torch.nn.functional.linear(normed, weight, bias)
