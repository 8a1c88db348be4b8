"""Sequences that lie one after another in a row, read off the mask that transformers asks for: where each
begins, and through which window its tokens attend, so that attention_varlen needs no mask.

A mask carries this as an attribute, as it does for decoding (decoding.py): where a model computes another
mask from it the attribute is lost, and the mask, which says the same, is attended by as any other.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from fusescope.core.errors import Unsupported
from fusescope.models.hugging_face import decoding, scope

_SEQUENCES = "packed_sequence_mask_function.<locals>.inner_mask"
_POSITIONS = "remap_positions_for_packed_sequence.<locals>.inner_mask"


class Packed(NamedTuple):
    """offsets: int32 (sequences + 1,), where each begins in the rows of the batch one after another. window:
    how many keys a token sees at most, the last, its own among them; None: all before it."""

    offsets: Any
    window: int | None


def of(keep) -> Packed | None:
    """What a mask carries, None where it carries nothing."""
    return getattr(keep, "fusescope_packed", None)


def carrying(keep, given):
    """A mask, which carries what it says where that is causality or a causal window inside each sequence.
    Finding the sequences waits for a GPU, so not under its capture."""
    import torch

    if torch.compiler.is_compiling() or (keep.is_cuda and torch.cuda.is_current_stream_capturing()):
        return keep
    ids, inside = _parts(given.get("mask_function"))
    if ids is None or given.get("attention_mask") is not None or given.get("kv_offset", 0):
        return keep
    window = decoding.window_of({**given, "mask_function": inside})
    if window == decoding.UNKNOWN or keep.shape[::2] != ids.shape or keep.shape[2] != keep.shape[3]:
        return keep
    begins = torch.ones_like(ids, dtype=torch.bool)
    begins[:, 1:] = ids.diff() != 0
    offsets = torch.nn.functional.pad(begins.flatten().nonzero()[:, 0].int(), (0, 1), value=ids.numel())
    keep.fusescope_packed = Packed(offsets, window)
    return keep


def agree(module, cu_seq_lens, keep, query) -> None:
    """Unsupported where cu_seq_lens_q, for which FlashAttention would need no mask, does not say what the
    mask does; compared once in a forward, which waits for a GPU."""
    import torch

    found, running = of(keep), None if torch.compiler.is_compiling() else scope.current()
    batch, _, queries, _ = query.shape
    key = "packed", cu_seq_lens.data_ptr(), id(found)
    if running is not None and key in running.kept:
        return
    if found is not None:
        same = torch.equal(cu_seq_lens.to(found.offsets), found.offsets)
    else:
        same = keep is None and batch == 1 and cu_seq_lens.tolist() == [0, queries]
    if not same:
        raise Unsupported(
            f"{type(module).__name__} was given packed sequences by cu_seq_lens_q that its mask does not "
            'have: attn_implementation="fusescope" goes by position_ids, which begin anew with each sequence'
        )
    if running is not None:
        running.kept[key] = cu_seq_lens, found  # so that neither address is used again meanwhile


def attend(query, key, value, found: Packed, scale):
    """(B, S, H, D) by attention_varlen; None where it takes no such tensors."""
    from fusescope.ops.attention import attention_varlen

    if key.shape != value.shape or query.shape[2] != key.shape[2]:
        return None
    rows = (t.transpose(1, 2).flatten(0, 1) for t in (query, key, value))
    window = None if found.window is None else (found.window - 1, 0)
    how = dict(causal=True, window=window, scale=scale, check=False)
    try:
        return attention_varlen(*rows, found.offsets, found.offsets, **how).unflatten(0, (query.shape[0], -1))
    except Unsupported:
        return None


def _parts(function) -> tuple[Any, Any]:
    """(the sequence that each token is of, int (B, S); the mask function inside of a sequence) of a mask
    function of transformers for packed sequences; (None, None) of others."""
    parts = decoding.joined(function)
    if parts is None or [part.__qualname__ for part in parts] != [_SEQUENCES, _POSITIONS]:
        return None, None
    ids = decoding.closed_over(parts[0]).get("packed_sequence_mask")
    return ids, decoding.closed_over(parts[1]).get("mask_function")
