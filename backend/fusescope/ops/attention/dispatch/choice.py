"""Which kernel impl="auto" stands for, and which kernels a GPU runs."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from fusescope.core.errors import Unsupported
from fusescope.ops.attention.dispatch import cost_model, tracing
from fusescope.ops.attention.plan.plan import Plan, prepared
from fusescope.ops.attention.work import parts

# Live keys a row up to which walking them one by one beats whole tiles. On an H200 at (16, 12, 2048, 64) in
# fp16 a live key costs v1 some 16 us over all rows and one tile a row costs v3 some 25 us (recorded run
# 20261120-113445-bench-3a2c37).
_SPARSE_KEYS = 2
# by how much the fp32 tile kernel is faster per element than the row-wise one, which reads K and V once a
# row; a guess
_REUSE = 3
_SCHEDULED = "v4_scheduled"
# predicted gain from which the rule takes a mask in parts; in the recorded runs smaller ones were not there
_GAIN = 1.4
_FEW_ROWS = 16  # query rows below which most of a 64-row tile would be idle


def choose(q, k, v, plan: Plan | None, plain: bool = True) -> str:
    """The kernel that "auto" stands for, from shape, strides, mask, dtype and device. plain: no bias, and a
    positive scale.

    On a GPU for which there is a fit (chooser.py): of the kernels that it has prices of, are built and take
    these inputs, the one whose predicted time is least. Without a fit, and under torch.compile, where files
    cannot be read, by a rule. "cpu" on the CPU. Kernels in parts are for plans of one mask for all sequences;
    the first call of a kind makes their work to see what it is, unless under CUDA graph capture.
    """
    import torch

    if q.device.type == "cpu":
        return "cpu"
    tma = tma_takes(q) and tma_takes(k) and tma_takes(v)
    scheduled = plain and q.shape[3] <= 128 and (plan is None or plan.is_full or plan.schedule is not None)
    compiling = torch.compiler.is_compiling()
    in_parts = plan is None or (plan.mask is not None and plan.batch == 1)
    in_parts = (
        in_parts and tma and scheduled and q.element_size() == 2 and capability(q.device.index) == (9, 0)
    )
    work = _work(plan, q, k) if in_parts and not compiling else None
    if not compiling and (known := _fitted(q.device.index)) is not None:
        figures = (
            1,
            q.shape[2] * k.shape[2],
            -(-q.shape[2] // 64) * -(-k.shape[2] // 64),
            0,
            -(-k.shape[2] // 64),
        )
        if plan is not None:
            figures = (
                plan.batch * plan.heads,
                plan.live_elements,
                plan.full_tiles,
                plan.partial_tiles,
                plan.longest,
            )
        todo = cost_model.work(q.shape[0], q.shape[1], q.shape[2], q.shape[3], *figures)
        todo = todo._replace(in_parts=None if work is None else work.figures)
        by_tma = (
            tuple(name for name in known.by_tma if scheduled or name not in (_SCHEDULED, parts.KERNEL))
            if tma
            else ()
        )
        taken = known.fit.choose(str(q.dtype).removeprefix("torch."), todo, known.any_strides + by_tma)
        if taken is not None:
            return taken
    live = executed = k.shape[2]
    if plan is not None:
        live, executed = plan.live_keys, plan.executed_keys
    gains = work is not None and work.gain >= _GAIN
    if in_parts and compiling and plan is not None and not plan.is_full:
        gains = tracing.gains(plan.key, int(q.shape[0]), int(q.shape[1]), int(q.shape[3]), _GAIN)
    return by_rule(
        capability(q.device.index), q.element_size(), q.shape[2], live, executed, tma, scheduled, gains
    )


def _work(plan: Plan | None, q, k) -> parts.Work | None:
    """The work of the kernel in parts; None where it would have to be made under CUDA graph capture."""
    import torch

    if not torch.cuda.is_current_stream_capturing():
        return parts.work(plan, q, k)
    plan = prepared(None, q.shape[2], k.shape[2], q.device) if plan is None else plan
    return None if plan is None else parts.known(plan, q.shape[0], q.shape[1], q.shape[3])


def by_rule(
    capability: tuple[int, int],
    element_size: int,
    seq_q: int,
    live_keys: float,
    executed_keys: float,
    tma: bool,
    scheduled: bool = False,
    gains: bool = False,
) -> str:
    """The choice without a fit. live_keys and executed_keys: of a query row on average, the latter in whole
    tiles; scheduled: what v4 needs beside TMA (no bias, a positive scale, head sizes up to 128, a schedule);
    gains: whether a kernel in parts is predicted to be well faster than v4.

    The row-wise kernel works on live keys, the others on whole tiles: it is taken where a row has few live
    keys on average or there are few rows, and where there are no tensor cores for the dtype (float32, or
    below compute capability 8.0), also where tiles are so empty that the fp32 kernel's better reuse does not
    pay. v3 and v4 are for compute capability 9.0 and for what TMA can address.
    """
    if live_keys <= _SPARSE_KEYS or seq_q < _FEW_ROWS:
        return "v1_rowwise"
    if element_size == 4 or capability < (8, 0):
        return "v2_blockwise_fp32" if executed_keys <= _REUSE * live_keys else "v1_rowwise"
    if capability != (9, 0) or not tma:
        return "v2_blockwise"
    if not scheduled:
        return "v3_hopper"
    return parts.KERNEL if gains else _SCHEDULED


def refuse_architecture(impl: str, capability: tuple[int, int]) -> None:
    """Raise Unsupported, naming what to use instead, where a kernel's source does not claim this compute
    capability."""
    from fusescope.core.archs import arch_of
    from fusescope.core.sources import families
    from fusescope.kernels import plan as build_plan

    arch = arch_of(*capability)
    known = [v for v in families()["attention"].variants if v.device == "cuda"]
    asked = next((v for v in known if v.name == impl), None)
    if asked is not None and not build_plan.claims(asked, arch):
        others = ", ".join(v.name for v in known if build_plan.claims(v, arch))
        raise Unsupported(f"{impl} is for {', '.join(asked.archs)}, and this GPU is {arch}; use {others}")


class _Fitted(NamedTuple):
    """A fit with the kernels that are built for the device: those that take any strides, and those fed by
    TMA."""

    fit: cost_model.Fit
    any_strides: tuple[str, ...]
    by_tma: tuple[str, ...]


@cache
def _fitted(index: int) -> _Fitted | None:
    import torch

    from fusescope.core.archs import arch_of
    from fusescope.core.sources import families
    from fusescope.kernels import plan as build_plan
    from fusescope.kernels import report

    found = cost_model.load(torch.cuda.get_device_name(index))
    if found is None:
        return None
    arch, states = arch_of(*capability(index)), report.state().get("attention", {})
    built = [
        v
        for v in families()["attention"].variants
        if v.device == "cuda"
        and build_plan.claims(v, arch)
        and states.get(v.name, {}).get("status") != "failed"
    ]
    by_tma = tuple(v.name for v in built if v.archs == ("sm_90a",))  # the Hopper kernels are those fed by TMA
    return _Fitted(found[0], tuple(v.name for v in built if v.name not in by_tma), by_tma)


def tma_takes(t) -> bool:
    """Whether address and strides are what TMA wants of a 16-bit tensor (…, D): multiples of 16 bytes,
    columns side by side.

    The address by its offset: torch's own storages begin at multiples of 256 bytes. torch.compile does not
    trace offsets; there an odd one is found by the kernel, whose error says so.
    """
    import torch

    size, stride = t.shape, t.stride()
    return (
        stride[-1] == 1
        and (torch.compiler.is_compiling() or t.storage_offset() % 8 == 0)
        and all(n == 1 or (s > 0 and s % 8 == 0) for n, s in zip(size[:-1], stride[:-1]))
    )


@cache
def capability(index: int) -> tuple[int, int]:
    import torch

    return torch.cuda.get_device_capability(index)
