"""The one place where what goes wrong in a command becomes a sentence and an exit code.

Expected: bad arguments (2), work that failed (1), Ctrl-C (1), a reader of the output that has gone (1). What
is not expected is a sentence too, and its traceback is kept in a file that the sentence names.
"""

from __future__ import annotations

import contextlib
import os
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from fusescope.cli.interrupts import handled, now
from fusescope.cli.output import drain, missing_package, say, sentence
from fusescope.core.errors import BuildError, RunError
from fusescope.core.machine import runtime

_KEPT = 20  # tracebacks


def reported(words: Sequence[str], work: Callable[[], int]) -> int:
    """The exit code of ``work``, which the words ask for; what it raises is said on standard error.
    FUSESCOPE_DEBUG lets exceptions through."""
    try:
        with handled():
            code = _tried(words, work)
    except KeyboardInterrupt:  # in the last moment
        code = _interrupted()
    return code if drain() else code or 1


def _tried(words: Sequence[str], work: Callable[[], int]) -> int:
    try:
        return work()
    except SystemExit as stop:  # argparse: --help, or a wrong argument that Parser.error has explained
        return stop.code if isinstance(stop.code, int) else 0
    except KeyboardInterrupt:
        return _interrupted()
    except BrokenPipeError:  # the reader has gone; nothing is left to say to him
        return 1
    except Exception as error:
        if now.count:
            return _interrupted()
        if os.environ.get("FUSESCOPE_DEBUG"):
            raise
        code, text = explain(words, error)
        say(f"error: {text}")
        return code


def explain(words: Sequence[str], error: Exception) -> tuple[int, str]:
    """Exit code and sentence for an exception."""
    if isinstance(error, ModuleNotFoundError):
        return 1, sentence(missing_package(" ".join(words[:2]), error))
    if isinstance(error, BuildError):
        for cause in error.causes:
            say(f"{cause.check}: {cause.says}\n  fix: {cause.fix}")
        return 1, sentence(str(error))
    if isinstance(error, RunError):
        return 1, sentence(str(error))
    if isinstance(error, ValueError | TypeError):
        return 2, sentence(str(error)) or type(error).__name__
    if isinstance(error, OSError):
        where = "" if error.filename is None else f"{error.filename}: "
        return 1, sentence(f"{where}{error.strerror}" if error.strerror else str(error))
    if isinstance(error, MemoryError):
        return 1, "there is not enough memory for this"
    return 1, sentence(f"{type(error).__name__}: {error}") + _keep(words, error)


def _keep(words: Sequence[str], error: Exception) -> str:
    """Keep the traceback in a file; the end of a sentence that names it."""
    with contextlib.suppress(OSError):
        home = runtime.private() / "errors"
        home.mkdir(mode=0o700, exist_ok=True)
        for old in sorted(home.iterdir())[: 1 - _KEPT]:
            old.unlink(missing_ok=True)
        file: Path = home / f"{time.time_ns()}-{os.getpid()}.txt"
        text = "".join(traceback.format_exception(error))
        file.write_text(f"fusescope {' '.join(words)}\n\n{text}", errors="backslashreplace")
        return f" (a fault of FuseScope; its traceback is in {file})"
    return " (a fault of FuseScope; set FUSESCOPE_DEBUG=1 to see where)"


def _interrupted() -> int:
    say(f"interrupted{_what_became()}")
    return 1


def _what_became() -> str:
    if now.run is None:
        return ""
    from fusescope.store import folder, library

    try:
        run = folder.read(library.find(now.run))
    except RunError:
        return f"; {now.run} cannot be read"
    stop = f" goes on in the background; fusescope runs cancel {run.id} stops it"
    return f": {run.id}{stop if run.live else f' is {run.status}'}"
