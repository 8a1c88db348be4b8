"""The CUDA sources of an operator's kernels, read once per process and tree."""

from __future__ import annotations

from functools import cache

from fusescope.core import paths
from fusescope.core.sources import Variant, families


def sources(family: str) -> tuple[Variant, ...]:
    """The CUDA kernels of a family, in the order of its ladder."""
    return _sources(family, str(paths.cuda_sources()))


def takes_work_items(impl: str) -> bool:
    """Whether a kernel of attention is given work items instead of the plan."""
    return group(impl) is not None


def group(impl: str) -> int | None:
    """The query tiles of a group that a kernel's work items are for; None where it takes none."""
    return next((v.group for v in sources("attention") if v.name == impl and v.plan == "parts"), None)


def groups(head_dim: int) -> tuple[int, ...]:
    """Those of all kernels on work items that take heads of this size."""
    kernels = [v for v in sources("attention") if v.plan == "parts"]
    return tuple(sorted({v.group for v in kernels if v.takes.has_head_dim(head_dim)}))


@cache
def _sources(family: str, root: str) -> tuple[Variant, ...]:
    found = families().get(family)
    return () if found is None else tuple(v for v in found.variants if v.device == "cuda")
