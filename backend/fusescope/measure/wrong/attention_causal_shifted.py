"""Aligned one key too early where the lengths differ."""

import torch

from fusescope.ops.attention import attention, prepare

ON = {"attention": {"heads": 4, "kv_heads": 2, "seq": 70, "seq_k": 200, "head_dim": 32, "mask": "causal"}}
DTYPES = ("float32", "float16")


def wrong(q, k, v, mask=None, *, bias=None, scale=None):
    s_q, s_k = mask.seq_q, mask.seq_k
    keep = torch.ones(s_q, s_k, dtype=torch.bool, device=q.device).tril(s_k - s_q - (s_q != s_k))
    return attention(q, k, v, prepare(keep, s_q, s_k, q.device), bias=bias, scale=scale)
