"""attention(): a call like an earlier one goes straight to the operator; any other is checked, its plan found
or built and its kernel chosen."""

from __future__ import annotations

from fusescope.kernels import register_fakes
from fusescope.ops.attention.dispatch import checks, kernel_sources, planned, tracing
from fusescope.ops.attention.dispatch.candidates import capability, refuse_architecture, way_of
from fusescope.ops.attention.dispatch.choice import choose, choose_scored
from fusescope.ops.attention.dispatch.dispatch import REFUSALS, Dispatch, empty_like, is_refusal
from fusescope.ops.attention.plan import of_call, padding
from fusescope.ops.attention.plan.plan import Plan
from fusescope.ops.attention.score import operators
from fusescope.ops.attention.work import parts

_dispatch = Dispatch("attention")


def attention(
    q,
    k,
    v,
    mask=None,
    *,
    bias=None,
    scale=None,
    impl="auto",
    out_bshd=False,
    softcap=None,
    sinks=None,
    score=None,
    clear_padding=False,
):
    """softmax(scale q kᵀ + bias, where the mask keeps) v: (B, H, S_q, D) of q's dtype; rows without a live
    key are zeros.

    q: (B, H, S_q, D); k, v: (B, H_kv, S_k, D) with H a multiple of H_kv (query head h reads KV head h // (H /
    H_kv)); float32, float16 or bfloat16, any strides, CPU or CUDA, forward only. D: multiples of 8 from 32 to
    256. Where S_q ≠ S_k query row i has position i + S_k − S_q.
    mask: a Mask (its plan is built on first use and cached), a Plan from ``prepare``, or a bool tensor
    broadcastable to (B, H, S_q, S_k), True = keep (a plan is built at every call: prepare it to keep it).
    None: every key. bias: tensor of q's dtype or float32, broadcastable likewise, added to the scaled scores.
    scale: 1/sqrt(D) where None. impl: a kernel of cuda/attention, or "auto" (see ``choose``).
    softcap: c > 0, scaled scores become c tanh(score / c) before the bias is added (Gemma 2). sinks: floating
    point (H,), a score of each head that takes part in the softmax and adds nothing (gpt-oss; rows without a
    live key stay zeros). score: a ``fusescope.Score``, or the text of one without tensors: what an expression
    makes of the scaled scores before the bias is added, compiled into the kernel at first use
    (``fusescope.compile_score``); not together with softcap. v1_rowwise, v2_blockwise, v2_blockwise_fp32,
    v4_scheduled and the CPU kernel take these three, v5_parts and v6_triples all but expressions; other
    kernels refuse them.
    A masked key is unseen: whatever K, V and the bias hold there, NaN included, has no effect, and a bias of
    −inf masks its key. Tile kernels compute rows that came out as NaN a second time, row by row, which is
    slow where many rows are. clear_padding: True sets K and V to zero, in copies, at keys that no query of
    their sequence sees, before the kernel runs, so that NaN in padding costs no such rows, for 4 B H_kv S_k D
    elements moved and 2 B H_kv S_k D held more (``padding.clear``; not in compiled code).
    out_bshd: the result is laid out as (B, S_q, H, D), so that ``.transpose(1, 2).reshape(B, S_q, H *
    D)``, what the next projection reads, copies nothing; else it is contiguous.

    Raises TypeError and ValueError for arguments that break a rule, Unsupported for what the kernel does not
    take, and RuntimeError for an unprepared mask under CUDA graph capture or torch.compile.
    """
    if clear_padding:
        k, v, mask = _cleared(q, k, v, mask)
    if softcap is not None or sinks is not None or score is not None:
        return _first_call(q, k, v, mask, bias, scale, impl, out_bshd, softcap, sinks, score)
    if _dispatch.is_loaded() and not _dispatch.is_compiling() and not _dispatch.modes():
        try:
            if scale is not None and type(scale) is not float:
                checks.scale(scale)
                scale = float(scale)
            calls = _dispatch.unmasked if mask is None else _dispatch.masked.get(id(mask))
            known = None if calls is None else calls.get(_key(q, k, mask, bias, scale, impl))
            if (
                known
                and not q.is_meta
                and not _dispatch.transformed()
                and not (_dispatch.is_grad_enabled() and _wants_gradient(q, k, v, bias))
            ):
                buffer, layout = known
                if scale is not None or bias is not None or out_bshd:
                    return _dispatch.operator(q, k, v, impl, buffer, layout, scale, bias, out_bshd)
                if buffer is None:
                    return _dispatch.operator(q, k, v, impl)
                return _dispatch.operator(q, k, v, impl, buffer, layout)
        except REFUSALS as error:
            _check(q, k, v, mask, bias, scale, impl)
            if not is_refusal(error):
                raise
    return _first_call(q, k, v, mask, bias, scale, impl, out_bshd)


def _key(q, k, mask, bias, scale, impl) -> tuple:
    """What the remembered arguments of calls with one mask depend on; a plan has its sizes and device."""
    positive, way = scale is None or scale > 0, bias if bias is None else way_of(bias, q.dtype)
    if type(mask) is Plan:
        return impl, q.shape, positive, way
    return impl, q.shape, k.shape, q.get_device(), positive, way


def _wants_gradient(q, k, v, bias) -> bool:
    return q.requires_grad or k.requires_grad or v.requires_grad or (bias is not None and bias.requires_grad)


def _check(q, k, v, mask, bias, scale, impl) -> None:
    """Raises in words what is wrong with the arguments, except for a mask that has no plan yet."""
    import torch

    checks.dense(torch, q, k, v)
    if isinstance(mask, Plan) and not _when_it_runs(impl):
        checks.plan(mask, q, k)
    if bias is not None:
        checks.bias(torch, bias, q, k)
    checks.scale(scale)
    checks.implementation(impl)


def _when_it_runs(impl) -> bool:
    """Whether compiled code is to look at the plan, and choose the kernel, when it runs (planned.py)."""
    import torch

    return impl == "auto" and torch.compiler.is_compiling() and not tracing.exporting()


def _first_call(q, k, v, mask, bias, scale, impl, out_bshd, softcap=None, sinks=None, score=None):
    """The call with every check; remembered if it goes well, but not one whose scores are modified."""
    import torch

    _check(q, k, v, mask, bias, scale, impl)
    modifiers = operators.checked(q, softcap, sinks, score)
    plan = of_call.plan_of(mask, q, k)
    scale = None if scale is None else float(scale)
    more = scale, bias, bool(out_bshd)
    if plan is not None and _when_it_runs(impl):
        return planned.attend(q, k, v, plan, *more, modifiers)
    if plan is not mask:
        checks.plan(plan, q, k)
    positive, way = scale is None or scale > 0, way_of(bias, q.dtype)
    if modifiers is not None:
        expressed = modifiers.score is not None
        chosen = choose_scored(q, k, v, plan, positive, expressed, way) if impl == "auto" else impl
        return operators.call(q, k, v, chosen, _given(chosen, plan, q, k), more, modifiers)
    chosen = choose(q, k, v, plan, positive, way) if impl == "auto" else impl
    if torch.compiler.is_compiling():
        tracing.load(q.device.type, "attention")
        given = _given(chosen, plan, q, k)
        return torch.ops.fusescope.attention.default(q, k, v, chosen, *given, *more)
    if q.device.type == "cuda":
        refuse_architecture(chosen, capability(q.device.index))
    given = _given(chosen, plan, q, k)
    out = _dispatch.call(q, k, v, impl=impl, chosen=chosen, more=(*given, *more))
    if not isinstance(mask, torch.Tensor):  # whose values may change
        _dispatch.remember(mask, _key(q, k, mask, bias, scale, impl), given)
    return out


def _cleared(q, k, v, mask):
    """k and v as ``padding.clear`` gives them, and the plan that it took; as they are without a mask."""
    import torch

    _check(q, k, v, None, None, None, "auto")
    if torch.compiler.is_compiling():
        raise RuntimeError("clear_padding is not for compiled code: clear K and V before it")
    plan = of_call.plan_of(mask, q, k)
    if plan is None:
        return k, v, mask
    checks.plan(plan, q, k)
    return (*padding.clear(k, v, plan), plan)


def _given(chosen: str, plan: Plan | None, q, k):
    """The plan, or the work items, that a kernel takes: (buffer or None, layout)."""
    import torch

    if torch.compiler.is_compiling():
        return _traced(chosen, plan, q)
    group = kernel_sources.group(chosen)
    source = plan if group is None else parts.work(plan, q, k, group)
    return (None, "") if source is None else (source.buffer, source.layout)


def _traced(chosen: str, plan: Plan | None, q):
    """The plan or work items that compiled code gives to the operator: (buffer or None, layout)."""
    group = tracing.group(chosen)
    if group is None:
        return (None, "") if plan is None else (plan.buffer, plan.layout)
    if plan is None:
        tracing.refuse_work_items_without_a_plan()
    wanted = (plan.key, int(q.shape[0]), int(q.shape[1]), int(q.shape[3]), group)
    return tracing.buffer(*wanted), tracing.layout(*wanted)


def _fake(q, k, v, impl, plan=None, layout="", scale=None, bias=None, out_bshd=False):
    like = q.transpose(1, 2) if out_bshd else q
    out = empty_like(like, k, v, plan, bias)
    return out.transpose(1, 2) if out_bshd else out


def _scored_fake(
    q, k, v, impl, plan=None, layout="", scale=None, bias=None, out_bshd=False, softcap=None, sinks=None
):
    return _fake(q, k, v, impl, plan, layout, scale, bias, out_bshd)


def _expressed_fake(
    q, k, v, impl, tables, plan=None, layout="", scale=None, bias=None, out_bshd=False, sinks=None
):
    return _fake(q, k, v, impl, plan, layout, scale, bias, out_bshd)


def _planned_fake(q, k, v, plan, scale, bias, out_bshd, softcap=None, sinks=None, header=None, tables=None):
    return _fake(q, k, v, "auto", plan, "", scale, bias, out_bshd)


register_fakes({"attention": _fake, "attention_scored": _scored_fake, "attention_expressed": _expressed_fake})
planned.give(attention, _planned_fake)
