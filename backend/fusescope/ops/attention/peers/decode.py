"""Peers of decoding: PyTorch over the padded cache with the lengths as a mask."""

from __future__ import annotations

import torch
from torch.nn.attention.flex_attention import create_block_mask

from fusescope.ops.attention.peers import sdpa
from fusescope.ops.common.peers import plain


def _mask(inputs):
    """(additive mask (B, 1, 1, S_max) or None where every key is live, empty sequences (B, 1, 1, 1) or
    None)."""
    lengths, k = inputs["lengths"], inputs["k"]
    dead = torch.arange(k.shape[2], device=k.device) >= lengths[:, None]
    if not bool(dead.any()):
        return None, None
    mask = sdpa.dead_scores(dead, k.dtype)[:, None, None]
    empty = (lengths == 0)[:, None, None, None]
    return mask, empty if bool(empty.any()) else None


def _grouped(inputs):
    """q as (B, H_kv, H / H_kv, D): the heads of a KV head as rows of one product."""
    q, kv = inputs["q"], inputs["k"].shape[1]
    return q.reshape(q.shape[0], kv, q.shape[1] // kv, q.shape[3])


def _finished(run, inputs, empty, backend=None):
    """run with its result as (B, H, 1, D), and zeros for the empty sequences, as their user would have to set
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
    k, v, scale = inputs["k"], inputs["v"], inputs["q"].shape[3] ** -0.5

    def run():
        scores = (_grouped(inputs) @ k.transpose(2, 3)) * scale
        return torch.softmax(scores if mask is None else scores + mask, -1) @ v

    return _finished(plain(run), inputs, empty)


def by_sdpa(backend, grouped, inputs):
    """SDPA over the padded cache with the lengths as a mask: heads as they are (enable_gqa), or those of a KV
    head as its rows."""
    mask, empty = _mask(inputs)
    k, v = inputs["k"], inputs["v"]
    gqa = not grouped and inputs["q"].shape[1] != k.shape[1]
    function = torch.nn.functional.scaled_dot_product_attention

    def q():
        return _grouped(inputs) if grouped else inputs["q"]

    def call():
        return function(q(), k, v, attn_mask=mask, enable_gqa=gqa)

    def chosen():
        return sdpa.backend_of(q(), k, v, mask, gqa=gqa)

    run, name = sdpa.on_backend(backend, call, chosen, inputs["q"], k, v)
    return _finished(run, inputs, empty, name)


def flex(inputs):
    """FlexAttention's decoding kernel, compiled, with a BlockMask of the lengths made outside the call."""
    q, k, v, lengths = inputs["q"], inputs["k"], inputs["v"], inputs["lengths"]
    compiled, (_, empty) = sdpa.compiled_flex(), _mask(inputs)
    block_mask = None

    def make_block_mask():
        nonlocal block_mask
        block_mask = create_block_mask(
            lambda b, h, i, j: j < lengths[b], q.shape[0], None, 1, k.shape[2], device=q.device
        )

    if bool((lengths < k.shape[2]).any()):
        sdpa.tried("FlexAttention", make_block_mask)

    def run():
        return compiled(q, k, v, block_mask=block_mask, enable_gqa=q.shape[1] != k.shape[1])

    return _finished(sdpa.tried("FlexAttention", run), inputs, empty, "flex_attention (inductor)")
