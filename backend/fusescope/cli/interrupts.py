"""Ctrl-C at any moment: one sentence on the state of the job, never a traceback.

While a job is being submitted and followed it is only counted: an exception could come anywhere, also between
the making of a run and the start of its worker, or where Python drops it (in a finaliser). Elsewhere it is
KeyboardInterrupt, once more where Python dropped it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator

_AGAIN_S = 0.02  # after Python dropped one


class Interrupts:
    """count: how often Ctrl-C was pressed. run: the id of the job that this command works on. counting:
    whether a Ctrl-C is only counted now."""

    def __init__(self):
        self.count, self.run, self.counting = 0, None, False

    @contextlib.contextmanager
    def only_counted(self) -> Iterator[None]:
        """Within it a Ctrl-C is counted and nothing else; the third ends the process."""
        self.counting = True
        try:
            yield
        finally:
            self.counting = False

    def note(self, _number, _frame) -> None:
        self.count += 1
        if not self.counting:
            raise KeyboardInterrupt
        if self.count > 2:
            goes_on = f"; {self.run} goes on in the background" if self.run else ""
            os.write(2, f"\ninterrupted{goes_on}\n".encode())
            os._exit(1)

    def terminated(self, number, _frame) -> None:
        """A kill, or a time limit of who started the command, ends it as ever; its job goes on, which is
        said."""
        if self.counting and self.run:
            stop = f"fusescope runs cancel {self.run} stops it"
            os.write(2, f"\nterminated; {self.run} goes on in the background; {stop}\n".encode())
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


now = Interrupts()
"""Of the command that runs in this process."""


@contextlib.contextmanager
def handled() -> Iterator[None]:
    """Ctrl-C as this module has it, as long as one command runs. Threads other than the main one get none,
    and where it is ignored (a job in the background of a shell) it stays so."""
    now.__init__()
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        yield
        return
    before, hook = signal.signal(signal.SIGINT, now.note), sys.unraisablehook
    alarm = signal.signal(signal.SIGALRM, now.note)
    ended = signal.getsignal(signal.SIGTERM)
    if ended is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, now.terminated)

    def dropped(unraisable) -> None:
        if unraisable.exc_type is KeyboardInterrupt:
            signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)
        else:
            hook(unraisable)

    sys.unraisablehook = dropped
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.unraisablehook = hook
        signal.signal(signal.SIGALRM, alarm)
        signal.signal(signal.SIGTERM, ended)
        signal.signal(signal.SIGINT, before)
