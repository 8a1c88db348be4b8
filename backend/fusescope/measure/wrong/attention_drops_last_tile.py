"""Leaves the last tile of keys out."""

from fusescope.ops.attention import attention, prepare

ON = {"attention": {"heads": 4, "kv_heads": 2, "seq": 70, "head_dim": 32, "mask": "causal"}}
DTYPES = ("float32", "float16")


def wrong(q, k, v, mask=None, *, bias=None, scale=None):
    keep = mask.dense().clone()
    keep[..., (keep.shape[3] - 1) // 64 * 64 :] = False
    return attention(q, k, v, prepare(keep, *keep.shape[2:], q.device), bias=bias, scale=scale)
