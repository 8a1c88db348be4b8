"""Attention with one mistake each, of the kinds that published kernels have made: every one must be caught,
``right`` must pass."""

import torch

from fusescope.ops.attention import attention, prepare


def right(q, k, v, mask=None, *, bias=None, scale=None):
    return attention(q, k, v, mask, bias=bias, scale=scale)


def ignores_partial_tiles(q, k, v, mask=None, *, bias=None, scale=None):
    """Skips dead tiles and treats every live one as full."""
    keep = mask.dense()
    s_q, s_k = keep.shape[2:]
    padded = torch.nn.functional.pad(keep, (0, -s_k % 64, 0, -s_q % 64))
    tiles = padded.unflatten(3, (-1, 64)).unflatten(2, (-1, 64)).any(5).any(3)
    blocks = tiles.repeat_interleave(64, 2).repeat_interleave(64, 3)[:, :, :s_q, :s_k]
    return attention(q, k, v, prepare(blocks, s_q, s_k, q.device), bias=bias, scale=scale)


def drops_the_last_tile(q, k, v, mask=None, *, bias=None, scale=None):
    keep = mask.dense().clone()
    keep[..., (keep.shape[3] - 1) // 64 * 64 :] = False
    return attention(q, k, v, prepare(keep, *keep.shape[2:], q.device), bias=bias, scale=scale)


def _softmax_without_maximum(q, k, v, keep, bias, scale):
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = q @ k.transpose(2, 3) * (q.shape[3] ** -0.5 if scale is None else scale)
    weights = (scores if bias is None else scores + bias).exp() * keep
    return weights / weights.sum(-1, keepdim=True).clamp_min(1e-30) @ v


def forgets_the_maximum(q, k, v, mask=None, *, bias=None, scale=None):
    """exp of the bare scores: right for small ones, infinite for large ones."""
    return _softmax_without_maximum(q, k, v, mask.dense(), bias, scale)


def causal_from_the_start(q, k, v, mask=None, *, bias=None, scale=None):
    """Query row i sees keys up to i, also where there are more keys than queries."""
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


def causal_shifted_by_one(q, k, v, mask=None, *, bias=None, scale=None):
    """Aligned one key too early where the lengths differ."""
    s_q, s_k = mask.seq_q, mask.seq_k
    keep = torch.ones(s_q, s_k, dtype=torch.bool, device=q.device).tril(s_k - s_q - (s_q != s_k))
    return attention(q, k, v, prepare(keep, s_q, s_k, q.device), bias=bias, scale=scale)


def nan_in_empty_rows(q, k, v, mask=None, *, bias=None, scale=None):
    out = attention(q, k, v, mask, bias=bias, scale=scale)
    return out.masked_fill(~mask.dense().any(-1, keepdim=True), float("nan"))


def average_in_empty_rows(q, k, v, mask=None, *, bias=None, scale=None):
    out = attention(q, k, v, mask, bias=bias, scale=scale)
    mean = v.mean(2, keepdim=True).repeat_interleave(q.shape[1] // k.shape[1], 1)
    return torch.where(mask.dense().any(-1, keepdim=True), out, mean)


def neighbouring_heads(q, k, v, mask=None, *, bias=None, scale=None):
    """Query head h reads KV head h mod H_kv instead of h div the group."""
    group = q.shape[1] // k.shape[1]
    return attention(q, k.repeat(1, group, 1, 1), v.repeat(1, group, 1, 1), mask, bias=bias, scale=scale)


def bias_before_scale(q, k, v, mask=None, *, bias=None, scale=None):
    return attention(q, k, v, mask, bias=bias * q.shape[3] ** -0.5, scale=scale)
