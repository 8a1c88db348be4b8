"""The scale of the norm on the outputs instead of the inputs."""

import torch

ON = {"norm_linear": {"rows": 4, "inputs": 64, "outputs": 64, "norm": "rmsnorm"}}
DTYPES = ("float32", "bfloat16")


def wrong(x, scale, shift, weight, bias, activation, eps):
    normed = torch.nn.functional.rms_norm(x, x.shape[-1:], None, eps)
    return torch.nn.functional.linear(normed, weight) * scale + bias
