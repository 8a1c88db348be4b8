"""The kernels that a GPU runs and that take given inputs, by the directives of their sources
(core/directives.py)."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from fusescope.core import directives, paths
from fusescope.core.directives import Inputs
from fusescope.core.errors import Unsupported
from fusescope.core.machine.archs import arch_of
from fusescope.core.sources import Variant
from fusescope.ops.attention.dispatch import cost_model
from fusescope.ops.attention.dispatch.kernel_sources import sources


class Ladder(NamedTuple):
    """What the rule without a fit chooses from: the kernel that walks live keys one by one, the one on tiles,
    the one on work items (None: there is none), and whether the one on tiles has tensor cores."""

    rows: str | None
    tiles: str | None
    items: str | None
    tensor_cores: bool


def inputs(
    dtype,
    head_dim: int,
    tma: bool,
    positive_scale: bool = True,
    scheduled: bool = True,
    items: bool = True,
    scored: bool = False,
    expressed: bool = False,
    fp8_cache: bool = False,
    new_token: bool = False,
    few_rows: bool = False,
    bias: bool = False,
    window: bool = False,
) -> Inputs:
    """dtype: a torch.dtype; positive_scale: the scale is; scheduled: the plan is of every key or has a
    schedule; items: it is one mask for all sequences, of which work items can be made; scored: with a
    soft-cap or sinks; expressed: with a score expression; fp8_cache: K and V of e4m3 with scales; new_token:
    with a new token's key and value, which go into the cache; few_rows: see ``least_rows``; bias: with one,
    or with ALiBi; window: of packed attention."""
    plans = ("lists", *("schedule",) * scheduled, *("parts",) * (scheduled and items))
    limits = str(dtype).removeprefix("torch."), head_dim, tma, bias, positive_scale, plans
    return Inputs(*limits, scored, expressed, fp8_cache, new_token, few_rows, window)


@cache
def capability(index: int) -> tuple[int, int]:
    import torch

    return torch.cuda.get_device_capability(index)


def built(family: str, index: int) -> tuple[Variant, ...]:
    """The kernels of a family for this GPU, without those that failed to build."""
    return _built(family, arch_of(*capability(index)), str(paths.cuda_sources()))


@cache
def _built(family: str, arch: str, root: str) -> tuple[Variant, ...]:
    from fusescope.kernels import plan as build_plan
    from fusescope.kernels import report

    states = report.state().get(family, {})
    return tuple(
        v
        for v in sources(family)
        if build_plan.claims(v, arch) and states.get(v.name, {}).get("status") != "failed"
    )


def last_that_takes(family: str, index: int, *facts, **more) -> str:
    """The last kernel of a family's ladder that takes the inputs that ``facts`` and ``more`` say
    (``inputs``); one whose source says "auto: no" only where no other does."""
    known = inputs(*facts, **more)
    accepted = [v for v in built(family, index) if v.accepts(known)]
    names = [v.name for v in accepted if not v.not_auto] or [v.name for v in accepted]
    if not names:
        raise Unsupported(f"{family} has no kernel for this GPU that takes {known}")
    return names[-1]


def that_takes(family: str, index: int, *facts, **more) -> str | None:
    """``last_that_takes``, None where no kernel does."""
    try:
        return last_that_takes(family, index, *facts, **more)
    except Unsupported:
        return None


def least_rows(family: str, index: int, *facts, **more) -> int:
    """The query rows of all heads from which ``last_that_takes`` holds; below, with few_rows, another kernel
    is faster."""
    import torch

    last = last_that_takes(family, index, *facts, **more)
    per_sm = next(v.least_rows for v in built(family, index) if v.name == last)
    return per_sm * torch.cuda.get_device_properties(index).multi_processor_count if per_sm else 0


def that_takes_a_new_token(index: int, dtype, head_dim: int) -> str | None:
    """The last kernel of attention_decode that takes a new token's key and value; None where none does."""
    facts = dtype, head_dim, False, True, False, False, False, False, False, True
    return that_takes("attention_decode", index, *facts)


def ladder(index: int, *facts, **more) -> Ladder:
    """The candidates of attention for inputs that ``facts`` and ``more`` say (``inputs``)."""
    return ladder_of(index, inputs(*facts, **more))


def ladder_of(index: int, known: Inputs) -> Ladder:
    """The candidates of attention for inputs. A kernel without prices on any GPU counts only where no other
    takes them; of those on work items the one for the smallest groups is taken, which suits most masks."""
    accepted = [v for v in built("attention", index) if v.accepts(known)]
    accepted = [v for v in accepted if v.name in cost_model.priced()] or accepted
    if not accepted:
        raise Unsupported(f"attention has no kernel for this GPU that takes {known}")
    items = sorted((v for v in accepted if v.plan == "parts"), key=lambda v: -v.group)
    rows = [v for v in accepted if not v.tiles]
    tiles = [v for v in accepted if v.tiles and v.plan != "parts"]
    by_tensor_cores = [v for v in tiles if directives.tensor_cores(v.expects)]
    tiles = by_tensor_cores or tiles
    return Ladder(
        *(kernels[-1].name if kernels else None for kernels in (rows, tiles, items)),
        bool(by_tensor_cores),
    )


def refuse_architecture(impl: str, capability: tuple[int, int]) -> None:
    """Raise Unsupported, naming what to use instead, where a kernel of attention does not claim this compute
    capability."""
    from fusescope.kernels import plan as build_plan

    arch = arch_of(*capability)
    kernel = next((v for v in sources("attention") if v.name == impl), None)
    if kernel is not None and not build_plan.claims(kernel, arch):
        others = ", ".join(v.name for v in sources("attention") if build_plan.claims(v, arch))
        raise Unsupported(f"{impl} is for {', '.join(kernel.archs)}, and this GPU is {arch}; use {others}")


def way_of(bias, dtype) -> str | None:
    """How kernels on the H100's tensor cores read a bias: "tiles" where it is of the inputs' dtype, its
    columns side by side and its rows at multiples of 16 bytes (cuda/attention/hopper_bias.cuh, has_pieces),
    else "elements"; None without one."""
    if bias is None:
        return None
    import torch

    size, stride = bias.shape, bias.stride()
    tiles = bias.dtype == dtype and size[-1:] != (1,) and stride[-1:] == (1,)
    tiles = tiles and (torch.compiler.is_compiling() or bias.storage_offset() % 8 == 0)
    tiles = tiles and all(n == 1 or s % 8 == 0 for n, s in zip(size[:-1], stride[:-1]))
    return "tiles" if tiles else "elements"


def tma_takes(t) -> bool:
    """Whether address and strides are what TMA wants of a 16-bit tensor (…, D): multiples of 16 bytes,
    columns side by side, at least one row.

    The address by its offset: torch's own storages begin at multiples of 256 bytes. torch.compile does not
    trace offsets; there an odd one is found by the kernel, whose error says so.
    """
    import torch

    size, stride = t.shape, t.stride()
    return (
        stride[-1] == 1
        and size[0] > 0
        and (torch.compiler.is_compiling() or t.storage_offset() % 8 == 0)
        and all(n == 1 or (s > 0 and s % 8 == 0) for n, s in zip(size[:-1], stride[:-1]))
    )
