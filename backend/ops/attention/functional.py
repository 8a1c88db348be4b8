"""attention(): checks what was given, finds or builds the plan, chooses a kernel and calls it."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from backend.core.errors import Unsupported
from backend.masks import Mask
from backend.ops.attention import chooser, parts
from backend.ops.attention.plan import Plan, prepare, prepared

_SUPPORTED_DIMS = "multiples of 8 from 32 to 256"
# Live keys a row up to which walking them one by one beats whole tiles. On an H200 at (16, 12, 2048, 64) in fp16 a live key costs
# v1 some 16 us over all rows and one tile a row costs v3 some 25 us (recorded run 20261120-113445-bench-3a2c37).
_SPARSE_KEYS = 2
_REUSE = (
    3  # by how much the fp32 tile kernel is faster per element than the row-wise one, which reads K and V once a row; a guess
)
_SCHEDULED = "v4_scheduled"
_FEW_ROWS = 16  # query rows below which most of a 64-row tile would be idle
_NO_GRADIENT = "attention is forward only, but {} requires a gradient; call it under torch.no_grad()"


def attention(q, k, v, mask=None, *, bias=None, scale=None, impl="auto"):
    """softmax(scale q kᵀ + bias, where the mask keeps) v: contiguous (B, H, S_q, D) of q's dtype; rows without a live key are zeros.

    q: (B, H, S_q, D); k, v: (B, H_kv, S_k, D) with H a multiple of H_kv (query head h reads KV head h // (H / H_kv)); float32,
    float16 or bfloat16, any strides, CPU or CUDA, forward only. D: multiples of 8 from 32 to 256. Where S_q ≠ S_k query row i
    stands at position i + S_k − S_q.
    mask: a Mask (its plan is built on first use and cached), a Plan from ``prepare``, or a bool tensor broadcastable to
    (B, H, S_q, S_k), True = keep (a plan is built at every call: prepare it to keep it). None: every key.
    bias: tensor of q's dtype or float32, broadcastable likewise, added to the scaled scores. scale: 1/sqrt(D) where None.
    impl: a kernel of cuda/attention, or "auto" (see ``choose``).

    Raises TypeError and ValueError for arguments that break a rule, Unsupported for what the kernel does not take, and
    RuntimeError for an unprepared mask under CUDA graph capture or torch.compile.
    """
    import torch

    if not torch.compiler.is_compiling():
        try:
            known = _known.get(_signature(q, k, v, mask, bias, impl))
        except (AttributeError, TypeError, RuntimeError):  # no dense tensors; what is wrong is said below
            known = None
        if known is not None:
            if torch.is_grad_enabled():
                _check_gradient(q, k, v, bias)
            if known.reshape is not None:
                bias = bias.reshape(known.reshape)
            try:
                scale_now = known.scale if scale is None else float(scale)
                return known.function(q, k, v, bias, *known.lists, scale_now, known.impl, *known.steps)
            except RuntimeError as error:
                if "unsupported: " not in str(error):
                    raise
    return _carefully(torch, q, k, v, mask, bias, scale, impl)


class _Known(NamedTuple):
    """What was found out about a signature: everything but the tensors and the scale of a call. ``mask`` is kept alive, because a
    signature holds its id; reshape is the bias's shape with four dimensions where it has fewer."""

    function: Any
    lists: tuple
    scale: float
    impl: str
    reshape: tuple[int, ...] | None
    mask: Any
    steps: tuple


# Checking and choosing take 15 us in Python; a call whose like has been checked goes straight to the operator. Sizes, strides, dtypes,
# devices and alignment of all tensors, the mask and the implementation asked for make up the like; values do not matter.
_known: dict[tuple, _Known] = {}
_KEPT = 256


def _signature(q, k, v, mask, bias, impl):
    shift = (q.storage_offset() | k.storage_offset() | v.storage_offset()) & 7
    tensors = (
        q.shape,
        k.shape,
        v.shape,
        q.stride(),
        k.stride(),
        v.stride(),
        q.dtype,
        k.dtype,
        v.dtype,
        q.device,
        k.device,
        v.device,
    )
    if bias is None:
        return (id(mask), impl, shift, tensors)
    return (id(mask), impl, shift, tensors, bias.shape, bias.dtype, bias.device)


def _carefully(torch, q, k, v, mask, bias, scale, impl):
    """The call with every check; what was found out is kept for the next one of the same signature."""
    _check(torch, q, k, v)
    given_bias, given_impl = bias, impl
    plan = mask if isinstance(mask, Plan) else _plan(torch, mask, q, k)
    if plan is not None:
        _check_plan(plan, q, k)
    if bias is not None:
        bias = _bias(torch, bias, q, k)
    default_scale = q.shape[3] ** -0.5
    if impl == "auto":
        impl = choose(q, k, v, plan, plain=bias is None and (scale is None or float(scale) > 0))
    lists, steps = (None, None, None, None, 0, 0), ()
    if impl == parts.KERNEL:
        if torch.compiler.is_compiling():
            _refuse_parts_while_tracing()
        lists, steps = parts.arguments(plan, q, k)
    elif plan is not None:
        steps = (plan.schedule, plan.fragments)
        lists = (plan.row_ptr, plan.tile_index, plan.tile_code, plan.bitmaps, plan.stride_b, plan.stride_h)
    args = (q, k, v, bias, *lists, default_scale if scale is None else float(scale))
    if torch.compiler.is_compiling():
        _while_tracing(q.device.type)
        return torch.ops.fusescope.attention.default(*args, impl, *steps)
    from backend import kernels

    if q.device.type == "cuda":
        refuse_architecture(impl, _capability(q.device.index))
    out = kernels.call("attention", *args, impl=impl, more=steps)
    if not isinstance(mask, torch.Tensor):  # the values of a tensor may change, and with them its plan
        reshape = None if bias is None or bias.dim() == given_bias.dim() else tuple(bias.shape)
        if len(_known) >= _KEPT:
            _known.clear()
        signature = _signature(q, k, v, mask, given_bias, given_impl)
        _known[signature] = _Known(torch.ops.fusescope.attention.default, lists, default_scale, impl, reshape, mask, steps)
    return out


def choose(q, k, v, plan: Plan | None, plain: bool = True) -> str:
    """The kernel that "auto" stands for, from shape, strides, mask, dtype and device. plain: no bias, and a positive scale.

    On a GPU for which there is a fit (chooser.py): of the kernels that it has prices of, are built and take these inputs, the one whose
    predicted time is least. Without a fit, and under torch.compile, where files cannot be read, by a rule. "cpu" on the CPU.
    """
    import torch

    if q.device.type == "cpu":
        return "cpu"
    tma = _tma_takes(q) and _tma_takes(k) and _tma_takes(v)
    scheduled = plain and q.shape[3] <= 128 and (plan is None or plan.is_full or plan.schedule is not None)
    if not torch.compiler.is_compiling() and (known := _fitted(q.device.index)) is not None:
        figures = (1, q.shape[2] * k.shape[2], -(-q.shape[2] // 64) * -(-k.shape[2] // 64), 0, -(-k.shape[2] // 64))
        if plan is not None:
            figures = (plan.batch * plan.heads, plan.live_elements, plan.full_tiles, plan.partial_tiles, plan.longest)
        todo = chooser.work(q.shape[0], q.shape[1], q.shape[2], q.shape[3], *figures)
        by_tma = tuple(name for name in known.by_tma if scheduled or name not in (_SCHEDULED, parts.KERNEL)) if tma else ()
        taken = known.fit.choose(str(q.dtype).removeprefix("torch."), todo, known.any_strides + by_tma)
        if taken is not None:
            return taken
    live = executed = k.shape[2]
    if plan is not None:
        live, executed = plan.live_keys, plan.executed_keys
    return by_rule(_capability(q.device.index), q.element_size(), q.shape[2], live, executed, tma, scheduled)


def by_rule(
    capability: tuple[int, int],
    element_size: int,
    seq_q: int,
    live_keys: float,
    executed_keys: float,
    tma: bool,
    scheduled: bool = False,
) -> str:
    """The choice without a fit. live_keys and executed_keys: of a query row on average, the latter in whole tiles; scheduled: what
    v4 needs beside TMA (no bias, a positive scale, head sizes up to 128, a schedule).

    The row-wise kernel works on live keys, the others on whole tiles: it is taken where a row has few live keys on average or there are
    few rows, and where there are no tensor cores for the dtype (float32, or below compute capability 8.0), also where tiles are so
    empty that the fp32 kernel's better reuse does not pay. v3 and v4 are for compute capability 9.0 and for what TMA can address.
    """
    if live_keys <= _SPARSE_KEYS or seq_q < _FEW_ROWS:
        return "v1_rowwise"
    if element_size == 4 or capability < (8, 0):
        return "v2_blockwise_fp32" if executed_keys <= _REUSE * live_keys else "v1_rowwise"
    if capability != (9, 0) or not tma:
        return "v2_blockwise"
    return _SCHEDULED if scheduled else "v3_hopper"


def refuse_architecture(impl: str, capability: tuple[int, int]) -> None:
    """Raise Unsupported, naming what to use instead, where a kernel's source does not claim this compute capability."""
    from backend.core.archs import arch_of
    from backend.core.sources import families
    from backend.kernels import plan as build_plan

    arch = arch_of(*capability)
    known = [v for v in families()["attention"].variants if v.device == "cuda"]
    asked = next((v for v in known if v.name == impl), None)
    if asked is not None and not build_plan.claims(asked, arch):
        others = ", ".join(v.name for v in known if build_plan.claims(v, arch))
        raise Unsupported(f"{impl} is for {', '.join(asked.archs)}, and this GPU is {arch}; use {others}")


class _Fitted(NamedTuple):
    """A fit with the kernels that are built for the device: those that take any strides, and those fed by TMA."""

    fit: chooser.Fit
    any_strides: tuple[str, ...]
    by_tma: tuple[str, ...]


@cache
def _fitted(index: int) -> _Fitted | None:
    import torch

    from backend.core.archs import arch_of
    from backend.core.sources import families
    from backend.kernels import plan as build_plan
    from backend.kernels import report

    found = chooser.load(torch.cuda.get_device_name(index))
    if found is None:
        return None
    arch, states = arch_of(*_capability(index)), report.state().get("attention", {})
    built = [
        v
        for v in families()["attention"].variants
        if v.device == "cuda" and build_plan.claims(v, arch) and states.get(v.name, {}).get("status") != "failed"
    ]
    by_tma = tuple(v.name for v in built if v.archs == ("sm_90a",))  # the Hopper kernels are those fed by TMA
    return _Fitted(found[0], tuple(v.name for v in built if v.name not in by_tma), by_tma)


def _tma_takes(t) -> bool:
    """Whether address and strides are what TMA wants of a 16-bit tensor: multiples of 16 bytes, columns side by side.

    The address by its offset: torch's own storages begin at multiples of 256 bytes. torch.compile does not trace offsets; there an odd
    one is found by the kernel, whose error says so.
    """
    import torch

    size, stride = t.shape, t.stride()
    return (
        stride[3] == 1
        and (torch.compiler.is_compiling() or t.storage_offset() % 8 == 0)
        and all(n == 1 or (s > 0 and s % 8 == 0) for n, s in zip(size[:3], stride[:3]))
    )


def fake(
    q,
    k,
    v,
    bias,
    row_ptr,
    tile_index,
    tile_code,
    bitmaps,
    mask_stride_b,
    mask_stride_h,
    scale,
    impl,
    schedule=None,
    fragments=None,
    parts=None,
    items=None,
):
    """The shape-only kernel: what torch.compile and opcheck learn of the operator."""
    return q.new_empty(q.shape)


@cache
def _capability(index: int) -> tuple[int, int]:
    import torch

    return torch.cuda.get_device_capability(index)


def _while_tracing(device_type: str) -> bool:
    """Loads the library so that the operator exists when torch.compile looks it up."""
    from backend import kernels

    kernels.load(device_type)
    return True


def _refuse_while_tracing() -> bool:
    raise RuntimeError("under torch.compile a mask must be prepared: pass prepare(mask, seq_q, seq_k, device), made outside")


def _refuse_parts_while_tracing() -> bool:
    raise RuntimeError(f"{parts.KERNEL} is not traced by torch.compile, because its work is made for each size; use v4_scheduled")


# What torch.compiler.assume_constant_result does, without importing torch here: run while tracing, not put into the graph. An
# exception in such a function ends the compilation, where one raised in traced code would only be a graph break and then no error.
_while_tracing._dynamo_marked_constant = True
_refuse_while_tracing._dynamo_marked_constant = True
_refuse_parts_while_tracing._dynamo_marked_constant = True


def _check(torch, q, k, v) -> None:
    for name, t in (("q", q), ("k", k), ("v", v)):
        if not isinstance(t, torch.Tensor):
            raise TypeError(f"{name} is a tensor, not {type(t).__name__}")
    if q.dim() != 4 or k.dim() != 4 or v.dim() != 4:
        raise ValueError(f"q is (B, H, S_q, D) and k, v are (B, H_kv, S_k, D); their shapes are {_shapes(q, k, v)}")
    if k.shape != v.shape or k.shape[0] != q.shape[0] or k.shape[3] != q.shape[3]:
        raise ValueError(
            f"k and v have one shape (B, H_kv, S_k, D) with q's batch and head size; q, k, v are {_shapes(q, k, v)} "
            "(a head size of v that differs from that of k is not supported)"
        )
    if not (q.dtype == k.dtype == v.dtype):
        raise TypeError(f"q, k and v have one dtype, not {q.dtype}, {k.dtype} and {v.dtype}")
    if q.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise Unsupported(f"dtype {q.dtype}; float32, float16 and bfloat16 are supported")
    if not (q.device == k.device == v.device):
        raise ValueError(f"q, k and v lie on one device, not on {q.device}, {k.device} and {v.device}")
    if q.device.type not in ("cpu", "cuda"):
        raise Unsupported(f"device {q.device}; cpu and cuda are supported")
    if 0 in q.shape or 0 in k.shape:
        raise ValueError(f"every size is at least 1; q, k, v are {_shapes(q, k, v)}")
    if q.shape[1] % k.shape[1]:
        raise ValueError(f"the number of query heads is a multiple of that of KV heads; {q.shape[1]} is not one of {k.shape[1]}")
    d = q.shape[3]
    if d % 8 or not 32 <= d <= 256:
        raise Unsupported(f"head size {d}; {_SUPPORTED_DIMS} are supported, because rows are read 8 elements at a time")
    if torch.is_grad_enabled():
        _check_gradient(q, k, v, None)


def _check_gradient(q, k, v, bias) -> None:
    if q.requires_grad or k.requires_grad or v.requires_grad:
        raise Unsupported(_NO_GRADIENT.format("an input"))
    if bias is not None and bias.requires_grad:
        raise Unsupported(_NO_GRADIENT.format("bias"))


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
        _check_broadcast("a mask tensor", mask, q, k)
    return prepare(mask, seq_q, seq_k, device)


def _check_plan(plan: Plan, q, k) -> None:
    if plan.seq_q != q.shape[2] or plan.seq_k != k.shape[2]:
        raise ValueError(
            f"the plan is for {plan.seq_q} queries and {plan.seq_k} keys; this call has {q.shape[2]} and {k.shape[2]}"
        )
    if plan.batch not in (1, q.shape[0]) or plan.heads not in (1, q.shape[1]):
        raise ValueError(
            f"the plan holds masks for {plan.batch} batch entries and {plan.heads} heads; this call has {q.shape[0]} and {q.shape[1]}"
        )
    if plan.device != q.device:
        raise ValueError(f"the plan was prepared for {plan.device}; q is on {q.device}")


def _bias(torch, bias, q, k):
    """bias with four dimensions; broadcast ones stay of size 1."""
    if not isinstance(bias, torch.Tensor):
        raise TypeError(f"bias is a tensor added to the scores, not {type(bias).__name__}")
    if bias.dtype not in (q.dtype, torch.float32):
        hint = "; a bool mask goes to mask=" if bias.dtype == torch.bool else ""
        raise TypeError(f"bias is of q's dtype {q.dtype} or torch.float32, not {bias.dtype}{hint}")
    if bias.device != q.device:
        raise ValueError(f"bias lies on q's device {q.device}, not on {bias.device}")
    _check_broadcast("bias", bias, q, k)
    if torch.is_grad_enabled() and bias.requires_grad:
        raise Unsupported(_NO_GRADIENT.format("bias"))
    return bias.reshape((1,) * (4 - bias.dim()) + tuple(bias.shape))


def _check_broadcast(what: str, t, q, k) -> None:
    full = (q.shape[0], q.shape[1], q.shape[2], k.shape[2])
    if t.dim() > 4 or any(have not in (1, want) for have, want in zip(reversed(t.shape), reversed(full))):
        raise ValueError(f"{what} is broadcastable to (B, H, S_q, S_k) = {full}; its shape is {tuple(t.shape)}")


def _shapes(*tensors) -> str:
    return ", ".join(str(tuple(t.shape)) for t in tensors)
