"""Many segments compiled at once: processes that fill torch's caches on disk while the measuring one loads
what is ready."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

from fusescope.core import paths
from fusescope.core.machine import toolchain
from fusescope.search.scheme.codegen import Segment
from fusescope.search.scheme.setting import Setting

_MOST = 14  # processes: each starts torch and holds a CUDA context of half a gigabyte
_DEADLINE_S = {"cpu": 300.0, "cuda": 180.0}  # of one segment, the start of the process included


def processes(setting: Setting, count: int, free_bytes: int | None = None) -> int:
    """How many to start for so many segments: one core is left to the measuring process, two segments a
    process at least, and (``free_bytes`` of the GPU) each gets memory for six of the largest tensor.
    FUSESCOPE_JOBS bounds them (ValueError where it is no number)."""
    largest = 2 * setting.batch * max(setting.heads * setting.seq**2, setting.seq * setting.ffn)
    fits = _MOST if free_bytes is None else max(1, free_bytes // (6 * largest + (1 << 30)))
    return max(
        1, min(len(os.sched_getaffinity(0)) - 1, _MOST, toolchain.compilers() or _MOST, fits, count // 2)
    )


def compile_all(
    setting: Setting, wanted: list[Segment], number: int, check: Callable[[], None] = lambda: None
) -> Iterator[tuple[Segment, str | None]]:
    """Compile these segments in ``number`` processes; yields each as it is done, with what ended its process,
    else None.

    A segment that merely raised counts as done: the measuring process meets the same exception. ``check`` may
    raise to stop; the processes are killed then.
    """
    todo = sorted(
        wanted, key=lambda s: -len(s.operators)
    )  # the longest first, so that none is left over at the end
    limit = _DEADLINE_S["cuda" if setting.cuda else "cpu"]
    with contextlib.ExitStack() as stack, selectors.DefaultSelector() as waiting:
        for _ in range(min(number, len(todo))):
            _Process(stack, waiting, setting).give(todo.pop(0), limit)
        while waiting.get_map():
            check()
            for ready, _ in waiting.select(0.1):
                process: _Process = ready.data
                done, ended = process.current, process.answer()
                if todo:
                    (_Process(stack, waiting, setting) if ended else process).give(todo.pop(0), limit)
                elif not ended:
                    process.close()
                yield done, ended
            now = time.monotonic()
            for process in [r.data for r in waiting.get_map().values()]:
                if now > process.until:
                    done = process.current
                    process.kill()
                    if todo:
                        _Process(stack, waiting, setting).give(todo.pop(0), limit)
                    yield done, f"its compilation took longer than {limit:g} s and was stopped"


class _Process:
    """One compiling process; ``current``: the segment that it works on."""

    def __init__(self, stack: contextlib.ExitStack, waiting: selectors.BaseSelector, setting: Setting):
        python_path = paths.python_path()
        env = os.environ | {"PYTHONPATH": python_path, "TORCHINDUCTOR_COMPILE_THREADS": "1"}
        self.setting, self.waiting, self.current, self.until = setting, waiting, None, 0.0
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fusescope.search.measuring.compile_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=env,
        )
        stack.callback(self.kill)
        waiting.register(self.process.stdout, selectors.EVENT_READ, self)

    def give(self, s: Segment, limit_s: float) -> None:
        self.current, self.until = s, time.monotonic() + limit_s
        line = {"setting": self.setting.spec(), "start": s.operators.start, "stop": s.operators.stop}
        with contextlib.suppress(BrokenPipeError):  # it died already: its end of the other pipe says so
            self.process.stdin.write(json.dumps(line) + "\n")
            self.process.stdin.flush()

    def answer(self) -> str | None:
        """None where the segment is done, else what ended the process."""
        line = self.process.stdout.readline()
        if line:
            return None
        self.close()
        return f"the process that compiled it ended with exit code {self.process.wait()}"

    def close(self) -> None:
        with contextlib.suppress(KeyError, ValueError):  # it is closed already
            self.waiting.unregister(self.process.stdout)
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()

    def kill(self) -> None:
        self.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()
