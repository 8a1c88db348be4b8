"""The same kernel on every rank."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fusescope.analysis.ranks.activities import KINDS, Activities
from fusescope.profiling.table import coded

MOST = 500
"""Names, the longest over all ranks first."""


def by_rank(each: Mapping[int, Activities]) -> dict:
    """One row per name and rank that has it: name, kind, rank, calls, total_ns, mean_ns; of the MOST names
    with the longest time."""
    rows: list[tuple] = []
    totals: dict[str, int] = {}
    for rank, of in each.items():
        count = len(of.names)
        calls = np.bincount(of.name[of.name >= 0], minlength=count)
        sums, kinds = np.zeros(count, np.int64), np.zeros(count, np.int64)
        np.add.at(sums, of.name[of.name >= 0], (of.end - of.begin)[of.name >= 0])
        kinds[of.name[of.name >= 0]] = of.kind[of.name >= 0]
        for code in np.flatnonzero(calls).tolist():
            name, ns = of.names[code], int(sums[code])
            rows.append((name, KINDS[kinds[code]], rank, int(calls[code]), ns))
            totals[name] = totals.get(name, 0) + ns
    kept = {name: n for n, name in enumerate(sorted(totals, key=lambda n: (-totals[n], n))[:MOST])}
    rows = sorted((r for r in rows if r[0] in kept), key=lambda r: (kept[r[0]], r[2]))
    calls, ns = (np.array([r[i] for r in rows], np.int64) for i in (3, 4))
    return {
        "name": coded([r[0] for r in rows]),
        "kind": coded([r[1] for r in rows]),
        "rank": np.array([r[2] for r in rows], np.int64),
        "calls": calls,
        "total_ns": ns,
        "mean_ns": ns / np.maximum(calls, 1),
    }
