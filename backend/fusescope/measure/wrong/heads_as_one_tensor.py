"""Gives one tensor instead of three."""

ON = {"split_heads": {"batch": 2, "seq": 7, "heads": 4, "kv_heads": 2, "head_dim": 8}}
DTYPES = ("float32", "bfloat16")


def wrong(qkv, bias, heads, kv_heads):
    return qkv + bias
