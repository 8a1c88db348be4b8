"""Each tile of 64 keys with the scale of its neighbour, twice as large."""

import torch

ON = {"attention_fp8": {"batch": 2, "heads": 2, "seq": 256, "head_dim": 64}}
DTYPES = ("float16", "bfloat16")


def wrong(q, k, v, plan):
    k = k.clone()
    k[:, :, 64:128] *= 2
    return torch.nn.functional.scaled_dot_product_attention(q, k, v)
