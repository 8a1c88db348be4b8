"""What an exception means: the status and the reason of the record, or that nothing can go on."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from fusescope.core.errors import BuildError, Cancelled, Unsupported


class Failed(RuntimeError):
    """What failed before, with the ``status`` that its record has."""

    def __init__(self, text: str, status: str = "error"):
        super().__init__(text)
        self.status = status


class _CtrlC:
    """What is known of the user's own Ctrl-C while ``noticing_ctrl_c`` is entered."""

    noticing = seen = False


@contextmanager
def noticing_ctrl_c() -> Iterator[None]:
    """While inside, a KeyboardInterrupt that came from the terminal is told from one that an implementation
    raises (see ``contained``)."""
    before = signal.getsignal(signal.SIGINT)
    outer, _CtrlC.noticing, _CtrlC.seen = _CtrlC.noticing, True, False

    def note(number, frame):
        _CtrlC.seen = True
        return before(number, frame)

    # in another thread, or with the system's own handler, no signal becomes a Python exception
    mine = callable(before) and threading.current_thread() is threading.main_thread()
    try:
        if mine:
            signal.signal(signal.SIGINT, note)
        yield
    finally:
        _CtrlC.noticing = outer
        if mine:
            signal.signal(signal.SIGINT, before)


@contextmanager
def contained() -> Iterator[None]:
    """What an implementation raises to end the process (SystemExit, KeyboardInterrupt) becomes Failed, so
    that it costs its own record only. The user's Ctrl-C passes through."""
    try:
        yield
    except Exception:
        raise
    except BaseException as e:
        if isinstance(e, KeyboardInterrupt) and (_CtrlC.seen or not _CtrlC.noticing):
            raise
        raise Failed(f"it raised {one_line(e)}") from e


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
