"""Peers of attention over packed sequences: PyTorch on padded tensors, on nested ones, and on packed rows."""

from __future__ import annotations

import inspect

import torch
from torch.nn.attention.flex_attention import create_block_mask

from fusescope.core.errors import Unsupported
from fusescope.ops.attention.peers import sdpa
from fusescope.ops.common.peers import plain


def _packed(inputs):
    """From (batch, H, longest, D) to (T, H, D): for the check only, since a padded model stays padded."""

    def finish(out):
        return torch.cat([out[b, :, :n].transpose(0, 1) for b, n in enumerate(inputs["lengths"])])

    return finish


def _mask(inputs):
    """The additive mask (batch, 1, 1, longest) of padding; None where nothing is masked.

    Under causal the padding needs none: it is after every key that a row sees.
    """
    q, lengths = inputs["padded"][0], inputs["lengths"]
    longest = q.shape[2]
    if inputs["causal"] or min(lengths) == longest:
        return None
    # The rows of an empty sequence are dropped anyway.
    seen = torch.tensor(lengths, device=q.device).clamp(min=1)[:, None]
    return sdpa.dead_scores(torch.arange(longest, device=q.device) >= seen, q.dtype)[:, None, None]


def eager(inputs):
    """Padded, with every score in memory."""
    q, k, v = inputs["padded"]
    mask = sdpa.later_keys(q.shape[2], q.dtype, q.device) if inputs["causal"] else _mask(inputs)
    run = plain(sdpa.eager(q, k, v, lambda: mask))
    run.finish = _packed(inputs)
    return run


def by_sdpa(backend, inputs):
    """SDPA on the padded tensors with the padding as a mask; the result stays padded."""
    q, k, v = inputs["padded"]
    mask, gqa, causal = _mask(inputs), q.shape[1] != k.shape[1], inputs["causal"]
    function = torch.nn.functional.scaled_dot_product_attention

    def call():
        return function(q, k, v, attn_mask=mask, is_causal=causal, enable_gqa=gqa)

    run, name = sdpa.on_backend(backend, call, lambda: sdpa.backend_of(q, k, v, mask, causal, gqa), q, k, v)
    run = sdpa.named(run, f"{name}, padded")
    run.finish = _packed(inputs)
    return run


def nested(inputs):
    """SDPA on nested tensors of the packed values: PyTorch's own way to skip padding."""
    lengths, offsets = inputs["lengths"], inputs["cu_seqlens"].long()
    if 0 in lengths:
        raise Unsupported("nested tensors are given to SDPA without empty sequences only")
    shortest, longest = min(lengths), max(lengths)

    def jagged(t):
        rows = torch.nested.nested_tensor_from_jagged(t, offsets, min_seqlen=shortest, max_seqlen=longest)
        return rows.transpose(1, 2)

    def run():
        q, k, v = jagged(inputs["q"]), jagged(inputs["k"]), jagged(inputs["v"])
        out = torch.nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=inputs["causal"], enable_gqa=inputs["q"].shape[1] != inputs["k"].shape[1]
        )
        return out.transpose(1, 2).values()

    return sdpa.named(sdpa.tried("SDPA on nested tensors", run), "scaled_dot_product_attention, jagged")


def flash_varlen(inputs):
    """torch.nn.attention.varlen, FlashAttention on packed sequences, where this torch has it."""
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        raise Unsupported("this torch has no torch.nn.attention.varlen") from None
    q, k, v, cu, causal = (inputs[n] for n in ("q", "k", "v", "cu_seqlens", "causal"))
    longest = max(inputs["lengths"])
    takes = inspect.signature(varlen_attn).parameters
    extra = {}
    if q.shape[1] != k.shape[1]:
        if "enable_gqa" not in takes:
            raise Unsupported("varlen_attn of this torch does not take grouped heads")
        extra["enable_gqa"] = True
    if causal:
        extra |= {"window_size": (-1, 0)} if "window_size" in takes else {"is_causal": True}
    if q.dtype.itemsize != 2 or not q.is_cuda:
        raise Unsupported(f"varlen_attn takes float16 and bfloat16 on CUDA, not {q.dtype} on {q.device.type}")
    if any(t.data_ptr() % 16 for t in (q, k, v)):
        raise Unsupported("varlen_attn faults on an address that is not a multiple of 16 bytes")

    def run():
        return varlen_attn(q, k, v, cu, cu, longest, longest, **extra)

    return sdpa.named(sdpa.tried("varlen_attn", run), "flash, varlen_attn")


def flex(inputs):
    """FlexAttention over all rows as one sequence, compiled, with a BlockMask of the documents made outside
    the call."""
    q, k, v, lengths, causal = (inputs[n] for n in ("q", "k", "v", "lengths", "causal"))
    document = torch.repeat_interleave(
        torch.arange(len(lengths), device=q.device), torch.tensor(lengths, device=q.device)
    )
    compiled = sdpa.compiled_flex()

    def keep(b, h, i, j):
        same = document[i] == document[j]
        return same & (j <= i) if causal else same

    block_mask = create_block_mask(keep, None, None, q.shape[0], q.shape[0], device=q.device)

    def run():
        turned = (t.transpose(0, 1)[None] for t in (q, k, v))
        return compiled(*turned, block_mask=block_mask, enable_gqa=q.shape[1] != k.shape[1])[0].transpose(
            0, 1
        )

    return sdpa.named(sdpa.tried("FlexAttention", run), "flex_attention (inductor)")
