"""NaN in rows that see no key."""

from fusescope.ops.attention import attention

ON = {"attention": {"heads": 4, "kv_heads": 2, "seq": 200, "seq_k": 70, "head_dim": 32, "mask": "causal"}}
DTYPES = ("float32", "float16")


def wrong(q, k, v, mask=None, *, bias=None, scale=None):
    out = attention(q, k, v, mask, bias=bias, scale=scale)
    return out.masked_fill(~mask.dense().any(-1, keepdim=True), float("nan"))
