"""What commits of this checkout say, for runs that name the one they were made with."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Mapping
from functools import lru_cache

from fusescope.core import paths

_COMMIT = re.compile(r"[0-9a-f]{7,64}")


def subjects(commits: Iterable[str | None]) -> Mapping[str, str]:
    """Commit → the first line of its message, for those that this checkout has; empty outside a checkout."""
    known = {c for c in commits if c and _COMMIT.fullmatch(c)}
    return _subjects(tuple(sorted(known))) if known else {}


@lru_cache(maxsize=64)
def _subjects(commits: tuple[str, ...]) -> Mapping[str, str]:
    """One call of git for all of them."""
    if not (paths.ROOT / ".git").exists():
        return {}
    command = [
        "git",
        "-C",
        str(paths.ROOT),
        "log",
        "--no-walk=unsorted",
        "--ignore-missing",
        "--format=%H %s",
    ]
    try:
        done = subprocess.run(
            [*command, "--stdin"], input="\n".join(commits), capture_output=True, text=True, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    lines = dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)
    return {c: text for c in commits for whole, text in lines.items() if whole.startswith(c)}
