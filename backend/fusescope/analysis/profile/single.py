"""Gaps of a device that stand out: no part of the launch path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SINGLE, SINGLE_SHARE = 10.0, 0.05  # times the other gaps' mean, and share of the idle time


def single_gaps(summary: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The gaps that stand out, longest first: each SINGLE times as long as the rest on average, and
    SINGLE_SHARE of the idle time that is left. Start-up, a first allocation, a pause; not the launch path."""
    idle = (summary.get("idle") or {}).values()
    total, count = sum(row["total_ns"] for row in idle), sum(row["gaps"] for row in idle)
    found: list[Mapping[str, Any]] = []
    for gap in summary.get("longest_gaps") or ():
        ns, others = gap["dur_ns"], count - len(found) - 1
        rest = total - ns
        if ns < SINGLE_SHARE * total or (others and ns < SINGLE * rest / others):
            break
        found.append(gap)
        total = rest
    return found
