"""One code or baseline on its way to a record, and what an exception on that way means."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fusescope.core.errors import BuildError, Cancelled, Unsupported
from fusescope.core.records import Accuracy
from fusescope.search.measuring.segments import SegmentError


class Trial:
    """status stays None while it may be timed."""

    def __init__(self, name: str):
        self.name = name
        self.run: Callable[[], Any] | None = None
        self.sampler = None
        self.first_ms: float | None = None
        self.accuracy: Accuracy | None = None
        self.status: str | None = None
        self.reason: str | None = None

    def fail(self, status: str, reason: str) -> None:
        self.status, self.reason, self.run, self.sampler = status, reason, None, None


def cause(e: Exception) -> tuple[str, str]:
    """Status and reason of an exception. What is nobody's fault (a stop, a worker that is gone) or ends the
    process's CUDA context is raised again."""
    import torch

    from fusescope.measure import case, compare

    if isinstance(e, Cancelled | BrokenPipeError) or compare.ends_context(e):
        raise e
    if isinstance(e, SegmentError):
        return e.status, str(e)
    if case.is_out_of_memory(e):
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()
        return "oom", f"out of memory: {case.one_line(e)}"
    if isinstance(e, Unsupported):
        return "unsupported", str(e)
    return "error", str(e) if isinstance(e, BuildError) else case.one_line(e)
