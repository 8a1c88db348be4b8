"""What an exception means: the status and the reason of the record, or that nothing can go on."""

from __future__ import annotations

import torch

from fusescope.core.errors import BuildError, Cancelled, Unsupported


class Failed(RuntimeError):
    """What failed before, with the ``status`` that its record has."""

    def __init__(self, text: str, status: str = "error"):
        super().__init__(text)
        self.status = status


def cause(e: Exception) -> tuple[str, str]:
    """Status and reason of an exception. What is no implementation's fault (a stop, a reader that is gone) or
    ends the process's CUDA context is raised again."""
    if isinstance(e, Cancelled | BrokenPipeError) or ends_context(e):
        raise e
    if isinstance(e, Failed):
        return e.status, str(e)
    if is_out_of_memory(e):
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()
        return "oom", f"out of memory: {one_line(e)}"
    if isinstance(e, Unsupported):
        return "unsupported", str(e)
    return "error", str(e) if isinstance(e, BuildError) else one_line(e)


def ends_context(e: BaseException) -> bool:
    """Whether after this exception the process's CUDA context can do no more (an illegal address, a launch
    failure)."""
    suspect = type(e).__name__ == "AcceleratorError" or "CUDA error" in str(e)
    if isinstance(e, torch.OutOfMemoryError) or not suspect or not torch.cuda.is_initialized():
        return False
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return True
    return False  # an error of a call, such as one that a capturing stream does not permit; the context lives


def is_out_of_memory(e: BaseException) -> bool:
    """Out of memory on either device; the CPU allocator says it in words only."""
    return isinstance(e, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(e)


def one_line(e: BaseException) -> str:
    """An exception as a reason: its type and its first line."""
    return f"{type(e).__name__}: {first_line(e)}"


def first_line(e: BaseException) -> str:
    """The first line of an exception's text, its type where there is none."""
    return next((line.strip() for line in str(e).splitlines() if line.strip()), type(e).__name__)
