"""One builder at a time: a second one waits, says for whom, and then finds everything built."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from fusescope.core.errors import Cancelled


@contextlib.contextmanager
def builder(folder: Path, log: Callable[[str], None], cancelled: Callable[[], bool]) -> Iterator[None]:
    """Hold the build folder. The kernel drops an flock with its holder, so a file left by a dead process
    blocks no one.

    Raises Cancelled while waiting. The file holds the builder's process id as long as it works.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "a+") as file:
        reported = False
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not reported:
                    file.seek(0)
                    log(f"waiting for the build of process {file.read().strip() or 'unknown'} to finish")
                    reported = True
                if cancelled():
                    raise Cancelled("the build was cancelled while it waited for another one") from None
                time.sleep(0.1)
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)
