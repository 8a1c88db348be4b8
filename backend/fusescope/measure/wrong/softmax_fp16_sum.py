"""Exponentials summed in fp16."""

import torch

ON = {"softmax": {"rows": 64, "cols": 1000}}
DTYPES = ("float32", "float16")


def wrong(x):
    e = (x - x.amax(-1, keepdim=True)).float().exp()
    total = torch.zeros(x.shape[:-1], dtype=torch.float16)
    for j in range(x.shape[-1]):
        total = total + e[..., j].half()
    return (e / total[..., None].float()).to(x.dtype)
