"""attention() as compiled code calls it with a mask that is a tensor: one operator makes tile lists of the
mask, without reading anything back, and another attends by them.

The lists are a value of the graph like any other, of a size that the mask's shape gives. So they follow the
mask's values, one graph serves all masks of a shape, CUDA graphs can hold it (also those of
"reduce-overhead"), and nothing is kept when a call ends. What they lack, because it would have to be read
back: the schedule and the work items of the kernels v4 to v6, and the figures by which "auto" tells sparse
masks from dense ones.
"""

from __future__ import annotations

from typing import Any

from fusescope import kernels
from fusescope.core.kept.bounded_cache import BoundedCache
from fusescope.ops.attention.dispatch import checks
from fusescope.ops.attention.dispatch.candidates import tma_takes, way_of
from fusescope.ops.attention.dispatch.choice import choose, choose_scored
from fusescope.ops.attention.dispatch.dispatch import empty_like
from fusescope.ops.attention.plan import under_capture
from fusescope.ops.attention.score import operators

_LISTS = "attention_lists(Tensor mask, SymInt seq_q, SymInt seq_k) -> Tensor"
_LISTED = (
    "attention_listed(Tensor q, Tensor k, Tensor v, Tensor lists, SymInt mask_batch, SymInt mask_heads, "
    "float? scale, Tensor? bias, bool out_bshd, float? softcap=None, Tensor? sinks=None) -> Tensor"
)
_library: list[Any] = []  # torch forgets the operators with it
_chosen: BoundedCache[tuple[str, str]] = BoundedCache(256)  # (kernel, layout) by what they depend on


def lists(mask, seq_q: int, seq_k: int):
    """Tile lists, int32 (words,), of a bool tensor (B, H, seq_q, seq_k), True = keep, sizes of 1 standing for
    all. The mask must not change while they are used."""
    import torch

    _load()
    return torch.ops.fusescope.attention_lists.default(mask, seq_q, seq_k)


def attend(q, k, v, made, mask_shape, *, bias=None, scale=None, out_bshd=False, softcap=None, sinks=None):
    """``attention(q, k, v, mask, …)`` by the lists that ``lists`` made of a mask of this shape. Errors as of
    attention(); impl is "auto"."""
    import torch

    _load()
    checks.dense(torch, q, k, v)
    if bias is not None:
        checks.bias(torch, bias, q, k)
    checks.scale(scale)
    scale = None if scale is None else float(scale)
    modifiers = operators.checked(q, softcap, sinks, None)
    given = () if modifiers is None else modifiers[:2]
    return torch.ops.fusescope.attention_listed.default(
        q, k, v, made, mask_shape[0], mask_shape[1], scale, bias, out_bshd, *given
    )


def _load() -> bool:
    """Registers both operators; done while tracing."""
    import torch

    if not _library:
        library = torch.library.Library("fusescope", "FRAGMENT")
        for schema, run, fake in ((_LISTS, under_capture.lists, _lists_fake), (_LISTED, _run, _fake)):
            name = schema.partition("(")[0]
            library.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
            library.impl(name, run, "CompositeExplicitAutograd")
            torch.library.register_fake(f"fusescope::{name}", fake, lib=library)
        _library.append(library)
    return True


_load._dynamo_marked_constant = True  # as in tracing.py


def _lists_fake(mask, seq_q, seq_k):
    import torch

    return mask.new_empty(under_capture.words(*mask.shape[:2], seq_q, seq_k), dtype=torch.int32)


def _fake(q, k, v, made, mask_batch, mask_heads, scale, bias, out_bshd, softcap=None, sinks=None):
    out = empty_like(q.transpose(1, 2) if out_bshd else q, k, v, made, bias)
    return out.transpose(1, 2) if out_bshd else out


def _run(q, k, v, made, mask_batch, mask_heads, scale, bias, out_bshd, softcap=None, sinks=None):
    positive, way = scale is None or scale > 0, way_of(bias, q.dtype)
    modified = softcap is not None or sinks is not None
    sizes = q.shape, k.shape, q.dtype, q.device, mask_batch, mask_heads
    key = (*sizes, positive, way, modified, _addressed(q, k, v))
    known = _chosen.get(key)
    if known is None:
        words = under_capture.words(mask_batch, mask_heads, q.shape[2], k.shape[2])
        if made.numel() != words:
            raise ValueError(f"lists of such a mask have {words} numbers, not {made.numel()}: give its shape")
        plan = under_capture.of_lists(made, q.shape[2], k.shape[2], mask_batch, mask_heads)
        checks.plan(plan, q, k)
        chosen = (choose_scored if modified else choose)(q, k, v, plan, positive, bias=way)
        known = _chosen.put(key, (chosen, plan.layout))
    impl, layout = known
    given, more = (made, layout), (scale, bias, out_bshd)
    if modified:
        return operators.call(q, k, v, impl, given, more, operators.Modifiers(softcap, sinks, None))
    return kernels.call("attention", q, k, v, impl=impl, more=(*given, *more))


def _addressed(*tensors) -> bool:
    return all(map(tma_takes, tensors))
