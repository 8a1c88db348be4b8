"""Calls whose scores a soft-cap, sinks or an expression modify: their checks, and the operators that take
them."""

from __future__ import annotations

from typing import Any, NamedTuple

from fusescope import kernels
from fusescope.ops.attention.dispatch import checks, tracing
from fusescope.ops.attention.score import compiled
from fusescope.ops.attention.score import score as scores


class Modifiers(NamedTuple):
    """softcap: a float above 0; sinks: floating point (H,); score: a Score or Lowered. Each is None
    where it is not given; softcap and score exclude each other."""

    softcap: float | None
    sinks: Any
    score: Any


def checked(q, softcap, sinks, score) -> Modifiers | None:
    """What attention() was given besides a q that is checked, None where that is nothing. Raises TypeError
    and ValueError for what breaks a rule."""
    import torch

    if softcap is None and sinks is None and score is None:
        return None
    checks.softcap(softcap)
    checks.sinks(torch, sinks, q)
    if score is not None:
        checks.one_of_softcap_and_score(softcap)
        score = scores.of(score)
        if score.tables:
            checks.one_device("q and the tensors of a score expression", q, *score.tables)
            what = "a tensor of the score expression"
            checks.no_gradient(torch, "attention", *score.tables, what=what)
    return Modifiers(None if softcap is None else float(softcap), sinks, score)


def call(q, k, v, impl: str, plan: tuple, more: tuple, modifiers: Modifiers):
    """Attention by this kernel. plan: (buffer or None, layout); more: scale, bias, out_bshd. RuntimeError
    where the kernel would have to be compiled under CUDA graph capture."""
    import torch

    softcap, sinks, score = modifiers
    sinks = None if sinks is None else sinks.to(torch.float32).contiguous()
    if torch.compiler.is_compiling():
        tracing.load(q.device.type, "attention")
    if score is None:
        op, given = "attention_scored", (*plan, *more, softcap, sinks)
    else:
        dtype = str(q.dtype).removeprefix("torch.")
        impl = compiled.kernel(score.header, impl, q.device.type, q.device.index, dtype, int(q.shape[3]))
        op, given = "attention_expressed", (list(score.tables), *plan, *more, sinks)
    if torch.compiler.is_compiling():
        return getattr(torch.ops.fusescope, op).default(q, k, v, impl, *given)
    return kernels.call(op, q, k, v, impl=impl, more=given)
