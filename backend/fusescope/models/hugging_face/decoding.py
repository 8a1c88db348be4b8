"""Decoding read off the mask that transformers asks for: over how many keys, and through which window, the
one query of each sequence attends, so that attention_decode needs no mask.

A mask carries this as an attribute. Where a model computes another mask from it the attribute is lost, and
the mask is attended by as any other.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from fusescope.core.errors import Unsupported

UNKNOWN = 0  # in the place of a window
_OVERLAY = "sliding_window_overlay.<locals>.inner_mask"


class Decoding(NamedTuple):
    """lengths: int32 (B,), how many of the keys that attention is given each sequence has, its own among
    them; None: those of ``model_masks.masked``. window: how many of these a query sees at most, the last;
    None: all. bias: float32 (B, 1, 1, keys), −inf where padding is; None: nowhere."""

    lengths: Any
    window: int | None
    bias: Any


def of(keep) -> Decoding | None:
    """What a mask carries, None where it carries nothing."""
    return getattr(keep, "fusescope_decoding", None)


def without_idle_window(given) -> dict:
    """What transformers asks for, causal where all keys that are there lie in the window of the one query:
    sliding layers of its caches keep no others."""
    from transformers.masking_utils import causal_mask_function

    window, offset = window_of(given), given.get("q_offset", 0)
    if given["q_length"] != 1 or not window or not isinstance(offset, int):
        return given
    if given.get("kv_offset", 0) <= offset - window:
        return given
    return {**given, "mask_function": causal_mask_function, "local_size": None}


def carrying(keep, given):
    """A mask, which of one query carries what it says, where that is a causal one or a window."""
    import torch

    window = window_of(given)
    if given["q_length"] != 1 or window == UNKNOWN:
        return keep
    keep = keep.contiguous()  # generate() calls this, and another tensor carries nothing
    batch, device = keep.shape[0], keep.device
    count = given.get("q_offset", 0) - given.get("kv_offset", 0) + 1
    if isinstance(count, torch.Tensor):  # of a static cache, which may be captured
        lengths = count.to(device=device, dtype=torch.int32).expand(batch).contiguous()
    else:
        lengths = torch.full((batch,), count, dtype=torch.int32, device=device)
    bias = None
    if given.get("attention_mask") is not None:
        bias = torch.zeros((), dtype=torch.float32, device=device).where(keep, -torch.inf)
    keep.fusescope_decoding = Decoding(lengths, window, bias)
    return keep


def under_lengths(given):
    """The mask inside ``masked(lengths)``: None, or for a sliding window one that carries it. Unsupported for
    what lengths do not say."""
    import torch
    from transformers.masking_utils import bidirectional_mask_function

    if given.get("mask_function") is bidirectional_mask_function or (window := window_of(given)) is None:
        return None
    if window == UNKNOWN:
        raise Unsupported(
            "inside masked(lengths) a layer attends causally or through a causal sliding window, and this "
            "model asks for another mask; give it its mask instead of lengths"
        )
    if given.get("kv_offset", 0):
        raise Unsupported(
            "masked(lengths) counts the keys of a cache from the first, and a layer with a sliding window of "
            f"{window} has dropped {given['kv_offset']}; give the model its mask instead of lengths"
        )
    shape = given["batch_size"], 1, given["q_length"], given["kv_length"]
    keep = torch.ones(shape, dtype=torch.bool, device=given.get("device", "cpu"))
    keep.fusescope_decoding = Decoding(None, window, None)
    return keep


def by_lengths(module, query, key, value, lengths, keep, bias, **how):
    """attention_decode by the lengths of ``masked``: (B, H, T, D). Unsupported for a bias by position, and
    for a mask that does not say its window."""
    from fusescope.ops.attention import attention_decode

    found = of(keep)
    if bias is not None:
        raise Unsupported(
            f"{type(module).__name__} decodes by lengths, which its position_bias excludes: it is of one "
            "position for all sequences"
        )
    if keep is not None and (found is None or found.lengths is not None):
        raise Unsupported(
            f"{type(module).__name__} decodes by lengths, and has a mask of its own besides, whose window is "
            "not known"
        )
    return attention_decode(query, key, value, lengths, window=found and found.window, **how)


def one_query(query, key, value, keep, count, **how):
    """(B, H, 1, D) of what a mask carries, or, where it is None, of all keys, by attention_decode; None where
    it does not say or no kernel takes it. count: gives the lengths that mean all keys; how: scale, softcap,
    sinks."""
    from fusescope.ops.attention import attention_decode
    from fusescope.ops.attention.decode import kernel_for

    if key.shape != value.shape:
        return None
    if keep is None:
        found = Decoding(None, None, None)
    elif (found := of(keep)) is None or keep.shape[0] != query.shape[0] or keep.shape[3] != key.shape[2]:
        return None
    general = found.window or found.bias is not None or len(how) > 1
    if not general:
        lengths = count() if found.lengths is None else found.lengths
        return attention_decode(query, key, value, lengths, **how)
    impl = kernel_for(query, general=True, biased=found.bias is not None)
    if impl is None:
        return None
    lengths = count() if found.lengths is None else found.lengths
    options = dict(window=found.window, bias=found.bias, impl=impl)
    return attention_decode(query, key, value, lengths, **options, **how)


def window_of(given) -> int | None:
    """The window of the mask function of transformers; None: a causal one without, UNKNOWN: another.

    torch.compile does not trace what a function closes over: there a window is not known."""
    import torch
    from transformers.masking_utils import causal_mask_function

    function = given.get("mask_function")
    if function is causal_mask_function:
        return None
    if given.get("local_size") is None or given.get("use_vmap") or torch.compiler.is_compiling():
        return UNKNOWN
    parts = joined(function)
    if parts is None or parts[1] is not causal_mask_function or parts[0].__qualname__ != _OVERLAY:
        return UNKNOWN
    window = closed_over(parts[0]).get("sliding_window")
    return window if isinstance(window, int) else UNKNOWN


def joined(function) -> tuple[Any, Any] | None:
    """The two mask functions that transformers' and_masks has joined; None of another function."""
    from transformers.masking_utils import causal_mask_function

    own = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if own != (causal_mask_function.__module__, "and_masks.<locals>.and_mask"):
        return None
    parts = closed_over(function).get("mask_functions")
    return parts if isinstance(parts, tuple) and len(parts) == 2 else None


def closed_over(function) -> dict[str, Any]:
    names = function.__code__.co_freevars if hasattr(function, "__code__") else ()
    return {name: cell.cell_contents for name, cell in zip(names, function.__closure__ or ())}
