"""Rows padded with zeros to a multiple of 32, and the padding summed with them."""

import torch

ON = {"softmax": {"rows": 64, "cols": 1000}}
DTYPES = ("float32", "float16")


def wrong(x):
    pad = -x.shape[-1] % 32
    return torch.softmax(torch.nn.functional.pad(x, (0, pad)), -1)[..., : x.shape[-1]].contiguous()
