"""attention(): calls the operator, after checking what was given, finding or building the plan and choosing a
kernel where that is new."""

from __future__ import annotations

from fusescope.masks import Mask
from fusescope.ops.attention.dispatch import checks, tracing
from fusescope.ops.attention.dispatch.choice import capability, choose, refuse_architecture
from fusescope.ops.attention.dispatch.fast_path import (
    REFUSALS,
    Short,
    asked,
    empty_like,
    short,
    while_tracing,
)
from fusescope.ops.attention.plan.plan import Plan, prepare, prepared
from fusescope.ops.attention.work import parts

_short: dict[str, Short] = {}  # of implementations asked for that went well before
_plans: dict[
    tuple, tuple[Plan, Mask]
] = {}  # by id of the mask, which is kept alive, shapes of q and k, and device
_works: dict[
    tuple, parts.Work
] = {}  # taken where there is no mask, by implementation asked for, shapes of q and k, and device
_KEPT = 256


def attention(q, k, v, mask=None, *, bias=None, scale=None, impl="auto", out_bshd=False):
    """softmax(scale q kᵀ + bias, where the mask keeps) v: (B, H, S_q, D) of q's dtype; rows without a live
    key are zeros.

    q: (B, H, S_q, D); k, v: (B, H_kv, S_k, D) with H a multiple of H_kv (query head h reads KV head h // (H /
    H_kv)); float32, float16 or bfloat16, any strides, CPU or CUDA, forward only. D: multiples of 8 from 32 to
    256. Where S_q ≠ S_k query row i stands at position i + S_k − S_q.
    mask: a Mask (its plan is built on first use and cached), a Plan from ``prepare``, or a bool tensor
    broadcastable to (B, H, S_q, S_k), True = keep (a plan is built at every call: prepare it to keep it).
    None: every key. bias: tensor of q's dtype or float32, broadcastable likewise, added to the scaled scores.
    scale: 1/sqrt(D) where None. impl: a kernel of cuda/attention, or "auto" (see ``choose``).
    out_bshd: the result lies in memory as (B, S_q, H, D), so that ``.transpose(1, 2).reshape(B, S_q, H *
    D)``, what the next projection reads, copies nothing; else it is contiguous.

    Raises TypeError and ValueError for arguments that break a rule, Unsupported for what the kernel does not
    take, and RuntimeError for an unprepared mask under CUDA graph capture or torch.compile.
    """
    if (way := _short.get(impl)) is not None and not way.is_compiling() and not way.modes():
        try:
            if mask is None:
                plan = _works.get((impl, q.shape, k.shape, q.device)) if _works and bias is None else None
            else:
                plan = mask if type(mask) is Plan else _plans[id(mask), q.shape, k.shape, q.device][0]
                if plan.held is not None and bias is None:
                    plan = plan.held.get((impl, q.shape), plan)
            given = (q, k, v, impl) if plan is None else (q, k, v, impl, plan.buffer, plan.layout)
            if not (way.is_grad_enabled() and _wants_gradient(q, k, v, bias)):
                if scale is None and bias is None:
                    out = way.operator(*given, out_bshd=True) if out_bshd else way.operator(*given)
                else:
                    out = way.operator(*given, scale=scale, bias=bias, out_bshd=out_bshd)
                if not out.is_meta:  # those have shapes only, and are refused
                    return out
        except REFUSALS:
            pass
    return _long(q, k, v, mask, bias, scale, impl, out_bshd)


def _wants_gradient(q, k, v, bias) -> bool:
    return q.requires_grad or k.requires_grad or v.requires_grad or (bias is not None and bias.requires_grad)


def _long(q, k, v, mask, bias, scale, impl, out_bshd):
    """The call with every check."""
    import torch

    checks.dense(torch, q, k, v)
    plan = mask if isinstance(mask, Plan) else _plan(torch, mask, q, k)
    if plan is not None:
        checks.plan(plan, q, k)
    if bias is not None:
        checks.bias(torch, bias, q, k)
    scale = None if scale is None else float(scale)
    chosen = (
        choose(q, k, v, plan, plain=bias is None and (scale is None or scale > 0)) if impl == "auto" else impl
    )
    if torch.compiler.is_compiling():
        while_tracing(q.device.type)
        given = _traced(chosen, plan, q)
        return torch.ops.fusescope.attention.default(q, k, v, chosen, *given, scale, bias, bool(out_bshd))
    from fusescope import kernels

    taken = parts.work(plan, q, k) if chosen == parts.KERNEL else plan
    more = (
        None if taken is None else taken.buffer,
        "" if taken is None else taken.layout,
        scale,
        bias,
        bool(out_bshd),
    )
    if q.device.type == "cuda":
        refuse_architecture(chosen, capability(q.device.index))
    out = kernels.call("attention", q, k, v, impl=asked(impl, chosen), more=more)
    if impl not in _short:
        _short[impl] = short("attention")
    if bias is None:  # with one no kernel takes anything but the plan
        _hold(taken, plan, impl, q, k)
    if isinstance(mask, Mask):
        if len(_plans) >= _KEPT:
            _plans.clear()
        _plans[id(mask), q.shape, k.shape, q.device] = plan, mask
    return out


def _traced(chosen: str, plan: Plan | None, q):
    """The plan that compiled code gives to the operator: (buffer or None, layout)."""
    if chosen != parts.KERNEL:
        return (None, "") if plan is None else (plan.buffer, plan.layout)
    if plan is None:
        _refuse_parts_without_a_plan()
    sizes = (plan.key, int(q.shape[0]), int(q.shape[1]), int(q.shape[3]))
    return tracing.buffer(*sizes), tracing.layout(*sizes)


def _hold(taken, plan: Plan | None, impl: str, q, k) -> None:
    """Notes for the short way which work a call alike takes instead of its plan."""
    if plan is None:
        known, key = _works, (impl, q.shape, k.shape, q.device)
    else:
        known, key = plan.held or {}, (impl, q.shape)
    if taken is plan:
        known.pop(key, None)
        return
    if len(known) >= _KEPT:
        known.clear()
    known[key] = taken
    if plan is not None and plan.held is None:
        object.__setattr__(plan, "held", known)


def _plan(torch, mask, q, k) -> Plan | None:
    """The plan for what was given as a mask; None = every key."""
    if mask is None:
        return None
    seq_q, seq_k, device = q.shape[2], k.shape[2], q.device
    if torch.compiler.is_compiling():
        _refuse_while_tracing()
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        found = prepared(mask, seq_q, seq_k, device) if isinstance(mask, Mask) else None
        if found is None:
            raise RuntimeError(
                "under CUDA graph capture a mask must be prepared: pass prepare(mask, seq_q, seq_k, device), made before"
            )
        return found
    if isinstance(mask, Mask) and mask.sequences not in (None, q.shape[0]):
        raise ValueError(f"mask {mask} is written for {mask.sequences} sequences, the batch is {q.shape[0]}")
    if isinstance(mask, torch.Tensor):
        checks.broadcastable("a mask tensor", mask, q, k)
    return prepare(mask, seq_q, seq_k, device)


def _refuse_while_tracing() -> bool:
    raise RuntimeError(
        "under torch.compile a mask must be prepared: pass prepare(mask, seq_q, seq_k, device), made outside"
    )


def _refuse_parts_without_a_plan() -> bool:
    raise RuntimeError(
        "under torch.compile a kernel in parts needs a plan, also of every key: pass prepare(None, seq_q, seq_k, device)"
    )


# Run while tracing, not put into the graph: an exception in such a function ends the compilation, where one
# raised in traced code would only be a graph break and then no error.
_refuse_while_tracing._dynamo_marked_constant = True
_refuse_parts_without_a_plan._dynamo_marked_constant = True


def fake(q, k, v, impl, plan=None, layout="", scale=None, bias=None, out_bshd=False):
    """The shape-only kernel: what torch.compile and opcheck learn of the operator."""
    return (
        empty_like(q.transpose(1, 2), k, v, plan, bias).transpose(1, 2)
        if out_bshd
        else empty_like(q, k, v, plan, bias)
    )
