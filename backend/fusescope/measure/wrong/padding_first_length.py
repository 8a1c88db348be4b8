"""Every sequence as long as the first."""

ON = {"padding": {"batch": 5, "seq": 9, "cols": 4}}
DTYPES = ("float32", "bfloat16")


def wrong(x, lengths, cu_seqlens, seq, total, direction):
    if direction == "pack":
        return x.flatten(0, 1)[:total].contiguous()
    out = x.new_zeros((lengths.shape[0] * seq, x.shape[-1]))
    out[:total] = x
    return out.view(lengths.shape[0], seq, -1)
