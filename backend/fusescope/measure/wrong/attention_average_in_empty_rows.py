"""The mean of all values in rows that see no key."""

import torch

from fusescope.ops.attention import attention

ON = {"attention": {"heads": 4, "kv_heads": 2, "seq": 200, "seq_k": 70, "head_dim": 32, "mask": "causal"}}
DTYPES = ("float32", "float16")


def wrong(q, k, v, mask=None, *, bias=None, scale=None):
    out = attention(q, k, v, mask, bias=bias, scale=scale)
    mean = v.mean(2, keepdim=True).repeat_interleave(q.shape[1] // k.shape[1], 1)
    return torch.where(mask.dense().any(-1, keepdim=True), out, mean)
