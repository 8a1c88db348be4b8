"""Peers of decoding: PyTorch over the padded cache with a mask of what each token sees, ALiBi and the bias in
it; pages are gathered into such a cache, and an fp8 cache is brought to q's dtype, in every call."""

from __future__ import annotations

import torch
from torch.nn.attention.flex_attention import create_block_mask

from fusescope.core.errors import Unsupported
from fusescope.ops.attention.peers import sdpa
from fusescope.ops.common.peers import plain
from fusescope.ops.fp8 import from_fp8, taken


def _mask(inputs):
    """(additive mask (B, 1 or H, T, S_max) or None where every key is live and nothing is added, empty tokens
    (B, 1, T, 1) or None)."""
    q, lengths, k, window = inputs["q"], inputs["lengths"], inputs["k"], inputs.get("window")
    tokens, table = q.shape[2], inputs.get("block_table")
    own = lengths[:, None, None] - tokens + torch.arange(tokens, device=k.device)[:, None]
    key = torch.arange(k.shape[2] * (1 if table is None else table.shape[1]), device=k.device)
    dead = key > own
    if window is not None:
        dead |= key <= own - window
    added = _added(inputs, (key - own)[:, None])
    if not bool(dead.any()):
        return added, None
    empty = dead.all(2)[:, None, :, None]
    if added is None:
        mask = sdpa.dead_scores(dead, q.dtype)[:, None]
    else:
        mask = added.masked_fill(dead[:, None], -torch.inf)
    return mask, empty if bool(empty.any()) else None


def _added(inputs, distance):
    """What is added to scores, of q's dtype, or None. distance: key less position, (B, 1, T, S_max)."""
    slopes, bias = inputs.get("alibi_slopes"), inputs.get("bias")
    if slopes is None:
        return bias if bias is None else bias.expand(distance.shape[0], -1, -1, -1)
    alibi = slopes[:, None, None] * distance
    return (alibi if bias is None else alibi + bias).to(inputs["q"].dtype)


def _cache(inputs):
    """A function that gives k and v as (B, H_kv, S_max, D) of q's dtype."""
    k, v, table, dtype = inputs["k"], inputs["v"], inputs.get("block_table"), inputs["q"].dtype
    scales = inputs.get("k_scale"), inputs.get("v_scale")
    pages = None if table is None else table.long()

    def one(t, scale):
        if pages is not None:
            t = taken(t, pages).transpose(1, 2).flatten(2, 3)
        return t if scale is None else from_fp8(t, scale, dtype)

    return lambda: (one(k, scales[0]), one(v, scales[1]))


def _grouped(inputs):
    """q as (B, H_kv, H / H_kv · T, D): the heads of a KV head as rows of one product."""
    q, kv = inputs["q"], inputs["k"].shape[1]
    return q.reshape(q.shape[0], kv, -1, q.shape[3])


def _for_rows(mask, inputs):
    """The mask for grouped rows, (B, 1 or H_kv, 1 or H / H_kv · T, S_max)."""
    q, kv = inputs["q"], inputs["k"].shape[1]
    if mask is None or (q.shape[2] == 1 and mask.shape[1] == 1):
        return mask
    if mask.shape[1] > 1:
        return mask.reshape(q.shape[0], kv, -1, mask.shape[3])
    return mask.repeat(1, 1, q.shape[1] // kv, 1)


def finished(run, inputs, empty, backend=None):
    """run with its result as (B, H, T, D), and zeros for the empty tokens, as their user would have to set
    them."""
    shape = inputs["q"].shape

    def whole():
        out = run().reshape(shape)
        return out if empty is None else out.masked_fill_(empty, 0)

    if backend:
        whole.backend = backend
    return whole


def eager(inputs):
    mask, empty = _mask(inputs)
    mask, cache, cap, sinks = (
        _for_rows(mask, inputs),
        _cache(inputs),
        inputs.get("softcap"),
        inputs.get("sinks"),
    )
    (b, h, tokens, d), kv = inputs["q"].shape, inputs["k"].shape[1]
    if sinks is not None:
        sinks = sinks.to(inputs["q"].dtype).view(1, kv, h // kv, 1, 1).expand(b, kv, h // kv, tokens, 1)
        sinks = sinks.reshape(b, kv, -1, 1)

    def run():
        k, v = cache()
        scores = (_grouped(inputs) @ k.transpose(2, 3)) * d**-0.5
        if cap is not None:
            scores = cap * torch.tanh(scores / cap)
        if mask is not None:
            scores = scores + mask
        if sinks is None:
            return torch.softmax(scores, -1) @ v
        return torch.softmax(torch.cat([scores, sinks], 3), -1)[..., :-1] @ v

    return finished(plain(run), inputs, empty)


def by_sdpa(backend, grouped, inputs):
    """SDPA over the padded cache with a mask: heads as they are (enable_gqa), or those of a KV head as its
    rows."""
    for name, what in (("softcap", "soft-capped scores"), ("sinks", "attention sinks")):
        if name in inputs:
            raise Unsupported(f"scaled_dot_product_attention has no {what}")
    mask, empty = _mask(inputs)
    cache = _cache(inputs)
    if grouped:
        mask = _for_rows(mask, inputs)
    gqa = not grouped and inputs["q"].shape[1] != inputs["k"].shape[1]
    function = torch.nn.functional.scaled_dot_product_attention

    def q():
        return _grouped(inputs) if grouped else inputs["q"]

    def call():
        return function(q(), *cache(), attn_mask=mask, enable_gqa=gqa)

    def chosen():
        return sdpa.backend_of(q(), *cache(), mask, gqa=gqa)

    run, name = sdpa.on_backend(backend, call, chosen, inputs["q"], *cache())
    return finished(run, inputs, empty, name)


def flex(inputs):
    """FlexAttention's decoding kernel, compiled, with a BlockMask of what each token sees made outside the
    call."""
    q, lengths, window, cap = inputs["q"], inputs["lengths"], inputs.get("window"), inputs.get("softcap")
    sinks, tokens, kv = inputs.get("sinks"), q.shape[2], inputs["k"].shape[1]
    slopes, bias = inputs.get("alibi_slopes"), inputs.get("bias")
    compiled, cache, (mask, empty) = sdpa.compiled_flex(), _cache(inputs), _mask(inputs)
    keys = mask.shape[3] if mask is not None else 0
    block_mask = None

    def sees(b, h, i, j):
        own = lengths[b] - tokens + i
        return j <= own if window is None else (j <= own) & (j > own - window)

    def modified(score, b, h, i, j):
        if cap is not None:
            score = cap * torch.tanh(score / cap)
        if slopes is not None:
            score = score + slopes[h] * (j - lengths[b] + tokens - i)
        return score if bias is None else score + bias[0, h, i, j]

    def make_block_mask():
        nonlocal block_mask
        block_mask = create_block_mask(sees, q.shape[0], None, tokens, keys, device=q.device)

    if mask is not None:
        sdpa.tried("FlexAttention", make_block_mask)
    options = dict(
        block_mask=block_mask,
        enable_gqa=q.shape[1] != kv,
        score_mod=None if cap is None and slopes is None and bias is None else modified,
        return_lse=sinks is not None,
    )

    def run():
        if sinks is None:
            return compiled(q, *cache(), **options)
        out, lse = compiled(q, *cache(), **options)
        return out * torch.sigmoid(lse - sinks[:, None]).to(out.dtype)[..., None]

    return finished(sdpa.tried("FlexAttention", run), inputs, empty, "flex_attention (inductor)")
