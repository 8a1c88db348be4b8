"""The plan of what a call of an attention function was given as its mask."""

from __future__ import annotations

from fusescope.masks import Mask
from fusescope.ops.attention.dispatch import checks, tracing
from fusescope.ops.attention.plan.plan import Plan, prepare, prepared


def plan_of(mask, q, k) -> Plan | None:
    """The plan for what was given as a mask; None = every key. Raises RuntimeError for an unprepared mask
    under CUDA graph capture or torch.compile, ValueError for one of other sizes."""
    import torch

    if isinstance(mask, Plan):
        return mask
    if mask is None:
        return None
    seq_q, seq_k, device = q.shape[2], k.shape[2], q.device
    if torch.compiler.is_compiling():
        tracing.refuse_an_unprepared_mask()
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        found = prepared(mask, seq_q, seq_k, device) if isinstance(mask, Mask) else None
        if found is None:
            raise RuntimeError(
                "under CUDA graph capture a mask must be prepared: "
                "pass prepare(mask, seq_q, seq_k, device), made before"
            )
        return found
    if isinstance(mask, Mask) and mask.sequences not in (None, q.shape[0]):
        raise ValueError(f"mask {mask} is written for {mask.sequences} sequences, the batch is {q.shape[0]}")
    if isinstance(mask, torch.Tensor):
        checks.broadcastable("a mask tensor", mask, (*q.shape[:3], seq_k))
    return prepare(mask, seq_q, seq_k, device)
