"""Query head h reads KV head h mod H_kv instead of h div the group."""

from fusescope.ops.attention import attention

ON = {"attention": {"heads": 4, "kv_heads": 2, "seq": 70, "head_dim": 32, "mask": "causal"}}
DTYPES = ("float32", "float16")


def wrong(q, k, v, mask=None, *, bias=None, scale=None):
    group = q.shape[1] // k.shape[1]
    return attention(q, k.repeat(1, group, 1, 1), v.repeat(1, group, 1, 1), mask, bias=bias, scale=scale)
