"""Query row i sees keys up to i, also where there are more keys than queries."""

import torch

ON = {"attention": {"heads": 4, "kv_heads": 2, "seq": 70, "seq_k": 200, "head_dim": 32, "mask": "causal"}}
DTYPES = ("float32", "float16")


def wrong(q, k, v, mask=None, *, bias=None, scale=None):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
