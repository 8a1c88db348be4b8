"""Skips dead tiles and treats every live one as full."""

import torch

from fusescope.ops.attention import attention, prepare

ON = {"attention": {"heads": 4, "kv_heads": 2, "seq": 70, "head_dim": 32, "mask": "causal"}}
DTYPES = ("float32", "float16")


def wrong(q, k, v, mask=None, *, bias=None, scale=None):
    keep = mask.dense()
    s_q, s_k = keep.shape[2:]
    padded = torch.nn.functional.pad(keep, (0, -s_k % 64, 0, -s_q % 64))
    tiles = padded.unflatten(3, (-1, 64)).unflatten(2, (-1, 64)).any(5).any(3)
    blocks = tiles.repeat_interleave(64, 2).repeat_interleave(64, 3)[:, :, :s_q, :s_k]
    return attention(q, k, v, prepare(blocks, s_q, s_k, q.device), bias=bias, scale=scale)
