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
    return any(v.name == impl and v.plan == "parts" for v in sources("attention"))


@cache
def _sources(family: str, root: str) -> tuple[Variant, ...]:
    return tuple(v for v in families()[family].variants if v.device == "cuda")
