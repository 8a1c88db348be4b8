"""When a device did nothing, and why: the gaps between its activities, each with what the host was doing."""

from __future__ import annotations

import numpy as np

from fusescope.profiling.table import ABSENT, Coded

CAUSES = ("synchronised", "profiler", "host", "launched", "unknown")
"""What kept the device idle, as far as the next activity's launch tells:

synchronised  the host waited for the device (a synchronising call was open in the gap) and launched only
              afterwards
profiler      the profiler's own work (overhead events) lay in the gap
host          the host had not launched yet: it was busy elsewhere, so the launch path is the limit
launched      it was launched before the gap began: launch latency, or a dependency on another stream or
              device
unknown       no launch is known for it
"""
LONGEST = 5
"""Gaps that a summary names."""
_SYNCHRONISING = ("Synchronize", "EventQuery", "StreamQuery")


def find(tables: dict[str, dict]) -> dict:
    """The table of gaps, by device and start: ts_ns, dur_ns, device, stream-spanning; cause, before, after
    (kernel or copy names), operator and module of what came after, step."""
    kernels, copies = tables["kernels"], tables["copies"]
    ts, dur, device, launch, step = (
        np.concatenate([kernels[c], copies[c]]) for c in ("ts_ns", "dur_ns", "device", "launch", "step")
    )
    order = np.lexsort((ts, device))
    parts = []
    for one in np.unique(device):
        rows = order[device[order] == one]
        ends = np.maximum.accumulate(ts[rows] + dur[rows])
        idle = np.flatnonzero(ts[rows][1:] > ends[:-1])
        last = np.maximum.accumulate(np.where(ts[rows] + dur[rows] == ends, np.arange(len(rows)), 0))
        parts.append((ends[idle], ts[rows][idle + 1] - ends[idle], rows[last[idle]], rows[idle + 1]))
    starts, lengths, before, after = (
        (np.concatenate(p) for p in zip(*parts)) if parts else (np.zeros(0, np.int64),) * 4
    )
    names = _joined(kernels["name"], copies["name"])
    return {
        "ts_ns": starts,
        "dur_ns": lengths,
        "device": device[after],
        "cause": Coded(_causes(starts, lengths, launch[after], tables), list(CAUSES)),
        "before": names[before],
        "after": names[after],
        "module": _joined(kernels["module"], copies["module"])[after],
        "step": step[after],
    }


def longest(gaps: dict) -> list[dict]:
    """The LONGEST longest gaps, longest first: ts_ns, dur_ns, device, cause, before, after."""
    rows = np.argsort(-gaps["dur_ns"], kind="stable")[:LONGEST]
    return [
        {
            "ts_ns": int(gaps["ts_ns"][row]),
            "dur_ns": int(gaps["dur_ns"][row]),
            "device": None if gaps["device"][row] == ABSENT else int(gaps["device"][row]),
            **{name: gaps[name].text(row) for name in ("cause", "before", "after")},
        }
        for row in rows.tolist()
    ]


def busy(tables: dict[str, dict]) -> list[dict]:
    """One dict per device: device, first_ns, last_ns, busy_ns (union over its streams), kernel_ns and copy_ns
    (sums)."""
    kernels, copies = tables["kernels"], tables["copies"]
    found = []
    for one in np.unique(np.concatenate([kernels["device"], copies["device"]])).tolist():
        spans = [(t["ts_ns"][t["device"] == one], t["dur_ns"][t["device"] == one]) for t in (kernels, copies)]
        ts, dur = (np.concatenate([s[i] for s in spans]) for i in (0, 1))
        order = np.argsort(ts, kind="stable")
        ts, ends = ts[order], np.maximum.accumulate((ts + dur)[order])
        idle = np.maximum(ts[1:] - ends[:-1], 0).sum()
        found.append(
            {
                "device": None if one == ABSENT else one,
                "first_ns": int(ts[0]),
                "last_ns": int(ends[-1]),
                "busy_ns": int(ends[-1] - ts[0] - idle),
                "kernel_ns": int(spans[0][1].sum()),
                "copy_ns": int(spans[1][1].sum()),
            }
        )
    return found


def _joined(a: Coded, b: Coded) -> Coded:
    shifted = np.where(b.codes < 0, -1, b.codes + len(a.values))
    return Coded(np.concatenate([a.codes, shifted]), a.values + b.values)


def _causes(starts: np.ndarray, lengths: np.ndarray, launch: np.ndarray, tables: dict) -> np.ndarray:
    launches, ranges = tables["launches"], tables["ranges"]
    known = launch >= 0
    when = (
        launches["ts_ns"][np.maximum(launch, 0)]
        if len(launches["ts_ns"])
        else np.zeros(len(launch), np.int64)
    )
    cause = np.where(
        known,
        np.where(when >= starts, CAUSES.index("host"), CAUSES.index("launched")),
        CAUSES.index("unknown"),
    )
    waits = launches["name"].mask(lambda name: any(word in name for word in _SYNCHRONISING))
    late = known & (when >= starts)
    cause[late & _open_in(starts, when, launches["ts_ns"][waits], launches["dur_ns"][waits])] = CAUSES.index(
        "synchronised"
    )
    own = ranges["cat"].mask(lambda cat: cat == "overhead")
    cause[_open_in(starts, starts + lengths, ranges["ts_ns"][own], ranges["dur_ns"][own])] = CAUSES.index(
        "profiler"
    )
    return cause.astype(np.int32)


def _open_in(begin: np.ndarray, end: np.ndarray, ts: np.ndarray, dur: np.ndarray) -> np.ndarray:
    """Whether any of the spans was open between begin and end."""
    if not len(ts):
        return np.zeros(len(begin), bool)
    order = np.argsort(ts, kind="stable")
    ts, ends = ts[order], np.maximum.accumulate((ts + dur)[order])
    before = np.searchsorted(ts, end, "left") - 1  # the last span that began before the end
    return (before >= 0) & (ends[np.maximum(before, 0)] > begin)
