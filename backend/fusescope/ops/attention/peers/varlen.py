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
    """The additive mask of padding, (batch, 1, 1, longest), with a window also of that: (batch, 1, longest,
    longest), or (1, 1, longest, longest) where no padding is seen. None where nothing is masked but by
    causal.

    Under causal the padding needs none: it is after every key that a row sees.
    """
    q, lengths = inputs["padded"][0], inputs["lengths"]
    longest = q.shape[2]
    padded = not inputs["causal"] and min(lengths) < longest
    dead = None
    if padded:
        # The rows of an empty sequence are dropped anyway.
        seen = torch.tensor(lengths, device=q.device).clamp(min=1)[:, None]
        dead = (torch.arange(longest, device=q.device) >= seen)[:, None, None]
    if inputs["window"]:
        at = torch.arange(longest, device=q.device)
        outside = ~_sees(at[:, None], at, *_window(inputs))[None, None]
        dead = outside if dead is None else dead | outside
    return None if dead is None else sdpa.dead_scores(dead, q.dtype)


def _window(inputs) -> tuple[int, int]:
    """(left, right) with what causal says."""
    left, right = inputs["window"] or (-1, -1)
    return left, 0 if inputs["causal"] else right


def _sees(i, j, left: int, right: int):
    """Whether queries at positions i see keys j, of a window that has a limit."""
    if left < 0:
        return j - i <= right
    return i - j <= left if right < 0 else (i - j <= left) & (j - i <= right)


def eager(inputs):
    """Padded, with every score in memory."""
    q, k, v = inputs["padded"]
    mask = _mask(inputs)
    if inputs["causal"] and mask is None:
        mask = sdpa.later_keys(q.shape[2], q.dtype, q.device)
    run = plain(sdpa.eager(q, k, v, lambda: mask))
    run.finish = _packed(inputs)
    return run


def by_sdpa(backend, inputs):
    """SDPA on the padded tensors with padding and window as a mask; the result stays padded."""
    q, k, v = inputs["padded"]
    mask, gqa = _mask(inputs), q.shape[1] != k.shape[1]
    causal = inputs["causal"] and mask is None
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
    if inputs["window"]:
        raise Unsupported("SDPA takes no mask on nested tensors, so no window")
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
    if "window_size" in takes:
        extra["window_size"] = _window(inputs)
    elif inputs["window"]:
        raise Unsupported("varlen_attn of this torch takes no window")
    else:
        extra["is_causal"] = causal
    if q.dtype.itemsize != 2 or not q.is_cuda:
        raise Unsupported(f"varlen_attn takes float16 and bfloat16 on CUDA, not {q.dtype} on {q.device.type}")
    if any(t.data_ptr() % 16 for t in (q, k, v)):
        raise Unsupported("varlen_attn faults on an address that is not a multiple of 16 bytes")

    def run():
        return varlen_attn(q, k, v, cu, cu, longest, longest, **extra)

    return sdpa.named(sdpa.tried("varlen_attn", run), "flash, varlen_attn")


def flex(inputs):
    """FlexAttention over all rows as one sequence, compiled, with a BlockMask of the documents, within the
    window, made outside the call."""
    q, k, v, lengths = (inputs[n] for n in ("q", "k", "v", "lengths"))
    left, right = _window(inputs)
    document = torch.repeat_interleave(
        torch.arange(len(lengths), device=q.device), torch.tensor(lengths, device=q.device)
    )
    compiled = sdpa.compiled_flex()

    def keep(b, h, i, j):
        same = document[i] == document[j]
        return same if left < 0 and right < 0 else same & _sees(i, j, left, right)

    block_mask = create_block_mask(keep, None, None, q.shape[0], q.shape[0], device=q.device)

    def run():
        turned = (t.transpose(0, 1)[None] for t in (q, k, v))
        return compiled(*turned, block_mask=block_mask, enable_gqa=q.shape[1] != k.shape[1])[0].transpose(
            0, 1
        )

    return sdpa.named(sdpa.tried("FlexAttention", run), "flex_attention (inductor)")
