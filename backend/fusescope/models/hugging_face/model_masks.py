"""The masks that models get: as few as the attention allows, and the plans of those that are there."""

from __future__ import annotations

import contextlib

from fusescope.core.kept.bounded_cache import BoundedCache
from fusescope.models.hugging_face import decoding, packed, scope
from fusescope.ops.attention.dispatch import listed, tracing

NOT_KEPT = -1e30  # fp32: far below any score, and finite, so that a row whose first tiles hold nothing is too
_FEW = 16  # queries, as in decoding, for which lists of 64 x 64 tiles would cost more to build than they save
_plans: BoundedCache = BoundedCache(256)  # of causality, by (queries, keys, device)
_compiled: dict = {}  # of these, the ones that compiled code finds by their handles, which must not go
_held: list = [None]  # the plan of ``masked``; not a ContextVar, which torch.compile cannot trace


@contextlib.contextmanager
def masked(plan):
    """Inside, models with attn_implementation="fusescope" attend by this plan
    (fusescope.ops.attention.prepare) in every self-attention.

    The plan takes the place of the model's own mask, padding and causality included. To decode, where each
    sequence has one query: how many keys of the cache each has, int32 (B,), in the place of a plan; layers
    with a sliding window see the last of these. It holds for the whole process: one thread at a time. (Under
    the FlexAttention peer: a BlockMask.)
    """
    before, _held[0] = _held[0], plan
    try:
        yield
    finally:
        _held[0] = before


def held():
    """What ``masked`` holds, or None."""
    return _held[0]


def mask(**given):
    """The mask that attention gets: none inside ``masked(plan)`` and where there is nothing to mask, also
    while capturing or compiling, where Hugging Face itself would build one; else Hugging Face's bool (B, 1,
    S, T), True = keep, to decode with what ``decoding`` reads off it."""
    import torch
    from transformers.masking_utils import sdpa_mask

    if not torch.compiler.is_compiling() and (running := scope.current()) is not None:
        running.masks += 1
    if isinstance(_held[0], torch.Tensor):
        return decoding.under_lengths(given)
    given = decoding.without_idle_window(given)
    if _held[0] is not None or nothing_to_mask(given):
        return None
    keep = sdpa_mask(**given)
    if keep is None:
        return None
    if _listed(keep, keep.shape[-2]):  # here, so that all layers share them
        keep.fusescope_lists = listed.lists(keep, keep.shape[-2], keep.shape[-1])
    return packed.carrying(decoding.carrying(keep, given), given)


def nothing_to_mask(given) -> bool:
    """Whether the mask is every key, or what the module's own is_causal says."""
    from transformers.masking_utils import bidirectional_mask_function, causal_mask_function

    if given.get("attention_mask") is not None or given.get("local_size") is not None:
        return False
    function, queries, keys = given.get("mask_function"), given["q_length"], given["kv_length"]
    if function is bidirectional_mask_function:
        return bool(given.get("allow_is_bidirectional_skip"))
    return (
        function is causal_mask_function
        and bool(given.get("allow_is_causal_skip"))
        and (queries == keys or queries == 1)
    )


def _listed(keep, queries: int) -> bool:
    """Whether attention goes by tile lists that are a value of the graph that torch.compile makes. An
    exported graph would need our Python to run."""
    import torch

    compiling = torch.compiler.is_compiling() and not tracing.exporting()
    return compiling and queries >= _FEW and keep.dtype == torch.bool


def tile_lists(attention_mask, queries: int, keys: int):
    """The tile lists (``listed.lists``) that compiled code goes by for what Hugging Face gives as a mask,
    those that were made with it where ``mask`` made it; None where there is nothing to make lists of, or
    nothing is compiled."""
    if attention_mask is None or not _listed(attention_mask, queries):
        return None
    made = getattr(attention_mask, "fusescope_lists", None)
    return listed.lists(attention_mask, queries, keys) if made is None else made


def plan_and_bias(attention_mask, causal: bool, query, keys: int, bias):
    """(plan, bias) for what Hugging Face gives as a mask: None, bool or added to the scores."""
    import torch

    queries, device = query.shape[2], query.device
    if attention_mask is None:
        return (_causal(queries, keys, device) if causal else None), bias
    if attention_mask.dtype != torch.bool:
        return None, attention_mask if bias is None else bias + attention_mask
    if torch.compiler.is_compiling() or queries < _FEW:
        added = torch.zeros((), dtype=torch.float32, device=device).where(attention_mask, NOT_KEPT)
        return None, added if bias is None else bias.float() + added
    return _plan_of_tensor(attention_mask, queries, keys, device), bias


def capturing(device) -> bool:
    import torch

    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def _plan_of_tensor(mask, queries: int, keys: int, device):
    """The plan of a bool tensor, kept for the other layers of this forward and no longer: values that change
    between calls, by whatever way (``.data``, NumPy), are seen.

    Inside a forward, what changes in place is seen by the tensor's version (inference tensors have none).
    """
    from fusescope.ops.attention import prepare
    from fusescope.ops.attention.plan import under_capture

    captured = capturing(device)

    def make():
        return under_capture.plan(mask, queries, keys) if captured else prepare(mask, queries, keys, device)

    if (running := scope.current()) is None:
        return make()
    version = None if mask.is_inference() else mask._version
    key = (mask.data_ptr(), mask.shape, mask.stride(), queries, keys, version, captured)
    if key not in running.kept:
        running.kept[key] = make(), mask  # the mask too, so that its memory is not used again meanwhile
    return running.kept[key][0]


def _causal(queries: int, keys: int, device):
    """The causal plan, kept: to name a mask and find its plan takes longer than a small attention. While
    torch.compile traces it is made then, as a constant of the graph."""
    import torch

    from fusescope import masks
    from fusescope.ops.attention import prepare

    sizes = (queries, keys, device)
    plan = _plans.get_or_make(sizes, lambda: prepare(masks.load("causal"), queries, keys, device))
    if torch.compiler.is_compiling():
        _compiled[sizes] = plan
    return plan


_causal._dynamo_marked_constant = True  # torch.compiler.assume_constant_result, without importing torch here
