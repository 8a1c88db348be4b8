"""Forgets the bias."""

ON = {"split_heads": {"batch": 2, "seq": 7, "heads": 4, "kv_heads": 2, "head_dim": 8}}
DTYPES = ("float32", "bfloat16")


def wrong(qkv, bias, heads, kv_heads):
    return tuple(_heads(qkv, None, heads, kv_heads))


def _heads(qkv, bias, heads, kv_heads):
    batch, seq, _ = qkv.shape
    split = (qkv if bias is None else qkv + bias).view(batch, seq, heads + 2 * kv_heads, -1).transpose(1, 2)
    return [t.contiguous() for t in split.split((heads, kv_heads, kv_heads), 1)]
