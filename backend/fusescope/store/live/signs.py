"""The marker by which a worker shows that it is at work, and the words for one that shows nothing."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from fusescope.store.bounded import plain

_LATE_S = 15.0  # without a sign, and readers say that the worker does not respond


def silence(run: Path, worker: Any = None) -> str | None:
    """A sentence where the worker of a live run gave no sign for a while: it is stopped, or waits for a disk.
    worker: what run.json says of it."""
    try:
        silent_s = time.time() - os.stat(marker(run)).st_mtime
    except OSError:
        return None
    if silent_s < _LATE_S:
        return None
    who = f"its worker, process {worker.get('pid')}" if isinstance(worker, dict) else "its worker"
    return f"not responding: no sign of {who}, for {silent_s:.0f} s; it can be cancelled"


def silent_end(run: Path, data: dict) -> tuple[str, str]:
    """Status and reason of a run that no process holds and that never recorded its end."""
    if (run / "cancel").exists():
        return "cancelled", "cancelled by user; its worker ended without a word"
    why = "its worker ended without a word: killed, or the machine went down"
    if "worker" not in data:
        why = ": ".join(["its worker never started", *_last_line(run / "log.txt")])
    return "interrupted", f"{why}; resume it to measure what is missing"


def _last_line(log: Path) -> list[str]:
    """The last line of a log, which says why an interpreter did not come up; nothing where it is empty."""
    try:
        with plain.opened(log) as f:
            f.seek(max(0, os.fstat(f.fileno()).st_size - 4096))
            lines = f.read().decode(errors="replace").splitlines()
    except OSError:
        return []
    printable = ("".join(c if c.isprintable() else " " for c in line).strip() for line in lines)
    return [line[-300:] for line in printable if line][-1:]


def marker(run: Path) -> Path:
    """The file that marks a run as live in lists."""
    return run.parent / ".live" / run.name


def markers(profiles: Path) -> list[Path]:
    """Those of all runs that may be live, by name; none of what lies elsewhere or is named otherwise: who
    finds that a run has ended deletes its marker."""
    home = profiles / ".live"
    if home.is_symlink() or not home.is_dir():
        return []
    return sorted(marker for marker in home.iterdir() if plain.ID.fullmatch(marker.name))
