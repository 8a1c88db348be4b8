"""Q, K and V rounded to bf16 in an fp16 case."""

from fusescope.ops.attention import attention

ON = {"attention": {"heads": 4, "kv_heads": 2, "seq": 70, "head_dim": 32, "mask": "causal"}}
DTYPES = ("float16",)


def wrong(q, k, v, mask=None, *, bias=None, scale=None):
    rounded = (t.bfloat16().to(q.dtype) for t in (q, k, v))
    return attention(*rounded, mask, bias=bias, scale=scale)
