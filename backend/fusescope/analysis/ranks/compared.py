"""Figures of many ranks that pages and the command line show alike: kinds of collectives, and kernels
that differ."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any


def kinds(collectives: Sequence[Mapping[str, Any]], events: Sequence[Mapping[str, Any]]) -> list[dict]:
    """One dict per name of collective, longest exposed first: name, collectives, calls (over ranks),
    total_ns, exposed_ns and overlap (share of total_ns under compute), median_skew_ns, max_skew_ns,
    transfer_ns (median) of those that are plausible, None without one. Rows of the tables collectives and
    collective_ranks."""
    names = {c["collective"]: c["name"] for c in collectives}
    found: dict[str, dict] = {}
    for name in dict.fromkeys(names.values()):
        mine = [c for c in collectives if c["name"] == name]
        sure = [c for c in mine if c["plausible"]]
        skews = [c["skew_ns"] for c in sure]
        found[name] = {
            "name": name,
            "collectives": len(mine),
            "calls": 0,
            "total_ns": 0,
            "exposed_ns": 0,
            "overlap": None,
            "median_skew_ns": median(skews) if skews else None,
            "max_skew_ns": max(skews, default=None),
            "transfer_ns": median(c["transfer_ns"] for c in sure) if sure else None,
        }
    for e in events:
        row = found[names[e["collective"]]]
        row["calls"] += 1
        row["total_ns"] += e["dur_ns"]
        row["exposed_ns"] += e["exposed_ns"]
    for row in found.values():
        row["overlap"] = 1 - row["exposed_ns"] / row["total_ns"] if row["total_ns"] else None
    return sorted(found.values(), key=lambda r: -r["exposed_ns"])


def kernels(rows: Sequence[Mapping[str, Any]], ranks: Sequence[int]) -> list[dict]:
    """One dict per kernel name of the table rank_kernels, what differs most first: name, kind, calls_min,
    calls_max, median_ns (of the ranks' totals), max_ns, slowest (rank), excess_ns (slowest over median),
    ratio; ranks: how many have it; total_ns: by rank, None where it has none."""
    by_name: dict[str, dict[int, Mapping]] = defaultdict(dict)
    for row in rows:
        by_name[row["name"]][row["rank"]] = row
    found = []
    for name, of in by_name.items():
        totals = [of[r]["total_ns"] if r in of else 0 for r in ranks]
        calls = [of[r]["calls"] if r in of else 0 for r in ranks]
        middle, most = median(totals), max(totals)
        found.append(
            {
                "name": name,
                "kind": next(iter(of.values()))["kind"],
                "calls_min": min(calls),
                "calls_max": max(calls),
                "median_ns": middle,
                "max_ns": most,
                "slowest": ranks[totals.index(most)],
                "excess_ns": most - middle,
                "ratio": most / middle if middle else None,
                "ranks": len(of),
                "total_ns": [of[r]["total_ns"] if r in of else None for r in ranks],
            }
        )
    return sorted(found, key=lambda r: -r["excess_ns"])


def pair(rows: Sequence[Mapping[str, Any]], first: int, second: int) -> list[dict]:
    """One dict per kernel name that either of two ranks has, the largest difference first: name, kind,
    first_calls, second_calls, first_ns, second_ns (totals, 0 where the rank does not run it),
    difference_ns (second − first), ratio (second over first, None where that is 0). Rows of the table
    rank_kernels; ValueError where the ranks are the same."""
    if first == second:
        raise ValueError(f"two ranks are compared, not rank {first} with itself")
    found: dict[str, dict] = {}
    for row in rows:
        if row["rank"] not in (first, second):
            continue
        own = found.setdefault(
            row["name"],
            {"name": row["name"], "kind": row["kind"]}
            | dict.fromkeys(("first_calls", "second_calls", "first_ns", "second_ns"), 0),
        )
        which = "first" if row["rank"] == first else "second"
        own[f"{which}_calls"], own[f"{which}_ns"] = row["calls"], row["total_ns"]
    for own in found.values():
        own["difference_ns"] = own["second_ns"] - own["first_ns"]
        own["ratio"] = own["second_ns"] / own["first_ns"] if own["first_ns"] else None
    return sorted(found.values(), key=lambda r: (-abs(r["difference_ns"]), r["name"]))
