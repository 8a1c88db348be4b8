"""Scales the bias together with the scores."""

from fusescope.ops.attention import attention

ON = {"attention": {"heads": 4, "kv_heads": 2, "seq": 70, "head_dim": 32, "mask": "causal", "bias": "head"}}
DTYPES = ("float32", "float16")


def wrong(q, k, v, mask=None, *, bias=None, scale=None):
    return attention(q, k, v, mask, bias=bias * q.shape[3] ** -0.5, scale=scale)
