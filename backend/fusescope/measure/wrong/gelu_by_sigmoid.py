"""x sigmoid(1.702 x), which is off by up to 0.02."""

import torch

ON = {"bias_gelu": {"rows": 33, "cols": 100}}
DTYPES = ("float32", "bfloat16")


def wrong(x, bias, approximate):
    v = x + bias
    return v * torch.sigmoid(1.702 * v)
