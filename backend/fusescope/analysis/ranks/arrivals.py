"""Who came last to each collective, and who waited for whom."""

from __future__ import annotations

import numpy as np


def skews(which: np.ndarray, rank: np.ndarray, begin: np.ndarray, end: np.ndarray, count: int) -> dict:
    """Columns by collective: first_ns and last_ns (arrivals), skew_ns between them, last_rank, ahead_ns
    (from the last but one arrival to the last: what that rank alone held up), end_ns (the last end),
    transfer_ns (from the last arrival to that end, at least 0); "ranks" present; and by event "wait_ns", up
    to the last arrival."""
    order = np.lexsort((begin, which))
    edge = np.searchsorted(which[order], np.arange(count))
    edges = np.concatenate([edge, [len(order)]])
    first, last = order[edges[:-1]], order[edges[1:] - 1]
    before = order[np.maximum(edges[1:] - 2, edges[:-1])]
    ends = np.full(count, np.iinfo(np.int64).min)
    np.maximum.at(ends, which, end)
    return {
        "first_ns": begin[first],
        "last_ns": begin[last],
        "skew_ns": begin[last] - begin[first],
        "last_rank": rank[last],
        "ahead_ns": begin[last] - begin[before],
        "end_ns": ends,
        "transfer_ns": np.maximum(ends - begin[last], 0),
        "ranks": np.diff(edges),
        "wait_ns": begin[last][which] - begin,
    }


def stragglers(
    found: dict, which: np.ndarray, rank: np.ndarray, sure: np.ndarray, ranks: list[int]
) -> dict[int, dict]:
    """Of each rank: collectives, last (in how many it came last), held_up_ns (what it alone held the others
    up, summed) and wait_ns (what it waited for others, summed); of those collectives alone that are
    ``sure``."""
    counted = sure[which]
    late = sure & (found["skew_ns"] > 0)
    rows = {r: (rank == r) & counted for r in ranks}
    return {
        r: {
            "collectives": int(rows[r].sum()),
            "last": int((late & (found["last_rank"] == r)).sum()),
            "held_up_ns": int(found["ahead_ns"][late & (found["last_rank"] == r)].sum()),
            "wait_ns": int(found["wait_ns"][rows[r]].sum()),
        }
        for r in ranks
    }
