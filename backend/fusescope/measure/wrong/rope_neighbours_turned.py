"""Turns neighbouring elements against each other instead of the halves of a head."""

ON = {"rope_cache": {"batch": 3, "tokens": 2, "heads": 4, "kv_heads": 2, "head_dim": 8, "seq_max": 40}}
DTYPES = ("float32", "bfloat16")


def wrong(q, k, v, cos_sin, positions, k_cache, v_cache, block_table):
    import torch

    at = positions.long()
    if at.dim() == 1:
        at = at[:, None] + torch.arange(q.shape[1], device=q.device)
    cos, sin = cos_sin[at][:, :, None].to(q.dtype).chunk(2, -1)

    def turned(x):
        even, odd = x[..., ::2], x[..., 1::2]
        return torch.stack((even * cos - odd * sin, odd * cos + even * sin), -1).flatten(-2)

    sequences = torch.arange(q.shape[0], device=q.device)[:, None]
    k_cache[sequences, :, at], v_cache[sequences, :, at] = turned(k), v
    return turned(q), k_cache, v_cache
