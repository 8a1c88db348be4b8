"""All runs: finding one by id, listing, filtering."""

from __future__ import annotations

from pathlib import Path

from backend.core import paths
from backend.core.errors import RunError


def find(run_id: str) -> Path:
    """The folder of a run by its id, or by a beginning that only one run has; recorded runs included. RunError else."""
    homes = (paths.profiles(), paths.profiles() / "recorded")
    if not run_id or "/" in run_id or run_id.startswith("."):
        raise RunError(f"{run_id!r} is not a run id; one looks like 20260131-235959-bench-1a2b3c")
    for home in homes:
        if (home / run_id / "run.json").is_file():
            return home / run_id
    found = [p.parent for home in homes for p in home.glob(f"{_literal(run_id)}*/run.json")]
    if len(found) == 1:
        return found[0]
    if found:
        raise RunError(
            f"{run_id} is the beginning of {len(found)} runs: {', '.join(sorted(p.name for p in found)[:4])} …; give more"
        )
    raise RunError(f"there is no run {run_id} in {homes[0]}")


def _literal(text: str) -> str:
    return "".join(f"[{c}]" if c in "*?[" else c for c in text)
