"""FlashAttention-4 (flash_attn.cute) as transformers calls an attention function.

It takes no mask, only bounds on the distance between a query and its keys. A mask is given to it as such
bounds, or refused: nothing is approximated.
"""

from __future__ import annotations

import importlib
import inspect
from dataclasses import dataclass

from fusescope.core.errors import Unsupported
from fusescope.models.hugging_face import model_masks

NAME = "fusescope_peer_fa4"  # transformers looks for kernels of its own where a name has "flash" in it
_REFUSED = {
    "position_bias": "position biases",
    "s_aux": "attention sinks",
    "sinks": "attention sinks",
    "indices": "keys chosen by an indexer",
    "block_indices": "blocks of keys chosen by an indexer",
    "cache": "a paged cache",
    "cu_seq_lens_q": "packed sequences",
    "output_attentions": "attention weights as an output",
}


@dataclass(frozen=True)
class Window:
    """Keys that a query sees: from ``left`` before its own place to ``right`` behind it, both included, None
    without a bound. The last query's place is that of the last key."""

    left: int | None = None
    right: int | None = None


def register() -> None:
    """Make it known to transformers under a name of ours."""
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(NAME, forward)
    AttentionMaskInterface.register(NAME, mask)


def mask(**given):
    """What ``forward`` gets as its mask: what ``masked`` holds (a Window, or int32 (B,) lengths), None where
    the module itself says what is masked, a Window for Hugging Face's sliding windows. Raises Unsupported for
    any other mask."""
    held = model_masks.held()
    if held is not None:
        return held
    if model_masks.nothing_to_mask(given):
        return None
    if given.get("attention_mask") is not None:
        raise Unsupported("FlashAttention-4 does not take this: a padding mask")
    window = _sliding(given.get("mask_function"))
    queries, keys = given["q_length"], given["kv_length"]
    if window is None or (queries != keys and given.get("q_offset") != keys - queries):
        raise Unsupported(
            "FlashAttention-4 does not take this: a mask that is not full, causal or a sliding window"
        )
    return window


def _sliding(function) -> Window | None:
    """Hugging Face's sliding windows, known by the functions that they are made of; None for any other."""
    from transformers import masking_utils as hf

    parts = tuple(inspect.getclosurevars(function).nonlocals.get("mask_functions", ()))
    if len(parts) != 2 or function.__code__ is not hf.and_masks(*parts).__code__:
        return None
    overlay, rest = parts
    size = inspect.getclosurevars(overlay).nonlocals.get("sliding_window")
    if not isinstance(size, int):
        return None
    if rest is hf.causal_mask_function and _same(overlay, hf.sliding_window_overlay):
        return Window(size - 1, 0)
    if rest is hf.bidirectional_mask_function and _same(overlay, hf.sliding_window_bidirectional_overlay):
        return Window(size, size)
    return None


def _same(overlay, maker) -> bool:
    return overlay.__code__ is maker(1).__code__


def forward(
    module,
    query,
    key,
    value,
    attention_mask,
    scaling=None,
    dropout=0.0,
    is_causal=None,
    softcap=None,
    **kwargs,
):
    """Hugging Face's attention function: query (B, H, S, D), key and value (B, H_kv, T, D), float16 or
    bfloat16 -> (out (B, S, H, D), None). attention_mask: as ``mask`` makes it.

    Raises Unsupported for tensors as masks, position biases, sinks, indexed keys, paged caches, packed
    sequences, attention weights, dropout, and dtypes and strides that FlashAttention-4 does not take.
    """
    import torch

    _refuse(module, dropout, kwargs)
    _check_layout(query, key, value)
    q, k, v = (t.transpose(1, 2) for t in (query, key, value))
    how = {"softmax_scale": scaling} | ({"softcap": softcap} if softcap else {})
    if isinstance(attention_mask, torch.Tensor):
        if attention_mask.dim() != 1 or query.shape[2] != 1:
            raise Unsupported(
                f"FlashAttention-4 does not take this: a mask as a tensor {tuple(attention_mask.shape)}"
            )
        if _has_window(kwargs, key.shape[2]):
            raise Unsupported(
                "FlashAttention-4 does not take this: a sliding window over caches with lengths of their own"
            )
        found = _package().flash_attn_varlen_func(q, k, v, seqused_k=attention_mask, **how)
    else:
        how |= _bounds(module, attention_mask, is_causal, query.shape[2], key.shape[2])
        found = _package().flash_attn_func(q, k, v, **how)
    return (found[0] if isinstance(found, tuple) else found), None


def _has_window(given, keys: int) -> bool:
    """Whether the keywords of this call say that a token of the layer sees fewer than these keys."""
    window = given.get("sliding_window")
    return window is not None and window < keys


def _bounds(module, window: Window | None, is_causal, queries: int, keys: int) -> dict:
    """causal= and window_size= of FlashAttention."""
    if window is not None:
        if window == Window(None, 0):
            return {"causal": True}
        return {"window_size": (window.left, window.right)}
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    if not causal or queries == 1:
        return {}
    if queries != keys:
        raise Unsupported(
            f"FlashAttention-4 does not take this: {queries} causal queries over a cache of {keys} keys"
        )
    return {"causal": True}


def _package():
    try:
        return importlib.import_module("flash_attn.cute")
    except ImportError as error:
        raise Unsupported(f"FlashAttention-4 is not installed (package flash-attn-4): {error}") from None


def _refuse(module, dropout, given) -> None:
    for name, what in _REFUSED.items():
        if (value := given.get(name)) is not None and value is not False:
            raise Unsupported(f"FlashAttention-4 does not take this: {what}, of {type(module).__name__}")
    if dropout and module.training:
        raise Unsupported(f"FlashAttention-4 does not take this: dropout {dropout}")


_taken: set = set()  # dtypes, strides and alignments that were checked: a call must not wait for it again


def _check_layout(*tensors) -> None:
    from fusescope.ops.attention.peers import vendor

    key = tuple((t.dtype, t.stride(), t.data_ptr() % 16) for t in tensors)
    if key not in _taken:
        vendor.half_precision("FlashAttention-4", *tensors)
        _taken.add(key)
