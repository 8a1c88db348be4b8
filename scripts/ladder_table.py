"""The table of a recorded run for a ladder's README: kernel times by implementation and case.

    python3 scripts/ladder_table.py RUN KEY[,KEY] [IMPL,IMPL]     RUN: a run's id; KEY: the parameters that
    head the columns

Times are medians of the warm graph time (eager where there is none) in µs; the share is that of the measured
ceiling that binds.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "backend")]

from fusescope.store import folder, library  # noqa: E402


def table(run: str, keys: list[str], impls: list[str] | None = None) -> str:
    records = folder.records(library.find(run))
    cases = list(dict.fromkeys(" × ".join(str(r.case[k]) for k in keys) for r in records))
    rows: dict[str, dict[str, str]] = {}
    for r in records:
        if impls is None or r.impl in impls:
            column = " × ".join(str(r.case[k]) for k in keys)
            rows.setdefault(r.impl, {})[column] = cell(r)
    lines = ["| µs | " + " | ".join(cases) + " |", "|---|" + "---:|" * len(cases)]
    lines += [f"| {impl} | " + " | ".join(row.get(c, "") for c in cases) + " |" for impl, row in rows.items()]
    return "\n".join(lines)


def cell(r) -> str:
    if r.status != "ok":
        return r.status
    us = r.ms * 1e3
    return f"{us:.0f}" if us >= 100 else f"{us:.3g}"


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    print(table(sys.argv[1], sys.argv[2].split(","), sys.argv[3].split(",") if len(sys.argv) == 4 else None))
