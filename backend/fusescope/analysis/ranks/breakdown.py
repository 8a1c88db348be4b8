"""Where a rank's time went: compute, communication hidden behind it and exposed, copies, idle; and idle
time of each stream. The figures are those of Holistic Trace Analysis (docs/internals/profiles.md says where
they differ)."""

from __future__ import annotations

import numpy as np

from fusescope.analysis.ranks import intervals
from fusescope.analysis.ranks.activities import ABSENT, COMMUNICATION, COMPUTE, Activities

PARTS = ("compute_ns", "overlapped_ns", "exposed_ns", "memory_ns", "idle_ns")
"""Parts of a rank's span, which add up to it: compute alone, compute and communication at once, communication
alone (copies may run), copies alone, nothing."""
BACK_TO_BACK_NS = 30_000
"""A shorter gap between launched activities of a stream is kernel wait."""


def times(of: Activities) -> dict[str, int]:
    """first_ns, last_ns, span_ns and PARTS of one rank, communication_ns (the union of its collectives)."""
    if not len(of):
        return dict.fromkeys(("first_ns", "last_ns", "span_ns", *PARTS, "communication_ns"), 0)

    def kind(*wanted: int) -> intervals.Union:
        rows = np.isin(of.kind, wanted)
        return intervals.union(of.begin[rows], of.end[rows])

    compute, communication = kind(COMPUTE), kind(COMMUNICATION)
    either, busy = kind(COMPUTE, COMMUNICATION), intervals.union(of.begin, of.end)
    first, last = int(of.begin.min()), int(of.end.max())
    overlapped = int(intervals.covered(*communication, compute).sum())
    talking = intervals.length(communication)
    return {
        "first_ns": first,
        "last_ns": last,
        "span_ns": last - first,
        "compute_ns": intervals.length(compute) - overlapped,
        "overlapped_ns": overlapped,
        "exposed_ns": talking - overlapped,
        "memory_ns": intervals.length(busy) - intervals.length(either),
        "idle_ns": last - first - intervals.length(busy),
        "communication_ns": talking,
    }


def compute_of(of: Activities) -> intervals.Union:
    rows = of.kind == COMPUTE
    return intervals.union(of.begin[rows], of.end[rows])


def idle_by_stream(of: Activities) -> list[dict]:
    """One dict per stream: stream, host_wait_ns (launched only after the stream's last activity had ended),
    kernel_wait_ns (launched before, gap below BACK_TO_BACK_NS), other_ns."""
    found = []
    for stream in np.unique(of.stream).tolist():
        rows = np.flatnonzero(of.stream == stream)
        before, begin, launch = of.end[rows[:-1]], of.begin[rows[1:]], of.launch[rows[1:]]
        gap = np.maximum(begin - before, 0)
        host = (launch != ABSENT) & (launch > before)
        near = ~host & (gap < BACK_TO_BACK_NS)
        found.append(
            {
                "stream": stream,
                "host_wait_ns": int(gap[host].sum()),
                "kernel_wait_ns": int(gap[near].sum()),
                "other_ns": int(gap[~host & ~near].sum()),
            }
        )
    return found
