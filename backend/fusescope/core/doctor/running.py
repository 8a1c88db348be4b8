"""The doctor's checks of what jobs share: the folder of locks, and the warm parent that waits for jobs."""

from __future__ import annotations

import json
import re
from pathlib import Path

from fusescope.core.doctor.findings import Finding
from fusescope.core.machine import runtime


def locks() -> Finding:
    """Whether the devices' locks are shared with the other users of this machine."""
    path = runtime.shared()
    try:
        with runtime.opened(path):
            return Finding("lock folder", "ok", f"jobs of all users take turns by {path}")
    except OSError as e:
        says = f"jobs of other users are not waited for: {path} cannot be used ({runtime.reason(e)})"
        fix = "remove it, or set FUSESCOPE_RUNTIME to one folder for all users"
        return Finding("lock folder", "warn", says, fix)


def warm_parents() -> list[Finding]:
    """The process that has torch imported so that jobs begin at once, and its memory; one per interpreter."""
    try:
        states = sorted(runtime.private().glob("warm-*.json"))
    except OSError:
        return []
    found = []
    for state in states:
        try:
            pid = int(json.loads(state.read_text())["pid"])
            process = Path(f"/proc/{pid}")
            if b"/warm.py\0" not in (process / "cmdline").read_bytes():
                continue
            memory = re.search(r"(?m)^Pss:\s+(\d+) kB", (process / "smaps_rollup").read_text())
        except (OSError, ValueError, KeyError, TypeError):
            continue
        size = f" holds {int(memory[1]) >> 10} MiB" if memory else ""
        says = f"process {pid}{size} so that jobs begin at once; it ends after an hour without a job"
        found.append(Finding("warm parent", "ok", says))
    return found
