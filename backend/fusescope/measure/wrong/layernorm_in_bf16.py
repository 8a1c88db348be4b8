"""Normalised values rounded to bf16 in an fp16 case."""

import torch

ON = {"layernorm": {"rows": 64, "cols": 33}}
DTYPES = ("float16",)


def wrong(x, weight, bias, eps):
    normal = torch.nn.functional.layer_norm(x.float(), x.shape[-1:], None, None, eps).bfloat16()
    return (normal.float() * weight + bias).to(x.dtype)
