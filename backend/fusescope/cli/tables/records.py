"""Records as a table for people: who is fastest, by how much, how sure, and is it right."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fusescope.charts.numbers import NA, percent, ratio, three, time_unit
from fusescope.charts.verdicts import compared_time, unknown
from fusescope.cli.output import table
from fusescope.cli.tables import roof as _roof
from fusescope.core.machine.conditions import are_unlike, banner, device_of, marks, unlike
from fusescope.core.records import Record, short
from fusescope.core.schema.cases import whole
from fusescope.core.verdict import scope

_WORDS = {"oom": "out of memory", "timeout": "timed out"}


def show(records: Sequence[Record], baseline: str | None, environment: Mapping[str, Any]) -> str:
    """One table per case, with the parameters that all cases share said once above and the device's ceilings
    below.

    environment: that of the run (core.machine.environment.collect, and the ceilings that were measured).
    """
    if not records:
        return "no records"
    shares = _roof.shares(records, environment)
    cases = list(dict.fromkeys(r.case_key for r in records))
    hold = _hold(records)
    differ = any(_hold(r for r in records if r.case_key == key) not in ("", hold) for key in cases)
    first = records[0]
    told = {r.case_key: case for r, case in zip(records, whole(r.case for r in records))}
    shared = {k: v for k, v in told[cases[0]].items() if all(c.get(k) == v for c in told.values())}
    lines = [
        f"{first.op}  {first.dtype} on {first.device}" + (f"  baseline {baseline}" if baseline else ""),
        _case(shared) if shared else "",
    ]
    for key in cases:
        rows = [r for r in records if r.case_key == key]
        own = {k: v for k, v in told[key].items() if k not in shared}
        where = f"on {device_of(rows[0])}" if are_unlike(records) and device_of(rows[0]) else ""
        head = " ".join(filter(None, [_case(own), where]))
        lines += ["", *([head] if head else []), _table(rows, baseline, shares)]
        lines += [f"  {short(r.impl)}: {r.reason}" for r in rows if r.reason]
        lines += [_hold(rows)] if differ else []
    if text := unlike(records):
        lines += ["", text]
    if busy := banner(records):
        lines += ["", f"{busy} --wait-idle 60 waits up to 60 s for an idle machine."]
    lines += ["", hold] if hold and not differ else []
    roof = _roof.words(records, environment)
    lines += ["", roof] if roof else []
    return "\n".join(line for i, line in enumerate(lines) if line or i != 1)


def _hold(records: Iterable[Record]) -> str:
    """What the intervals hold for: a case that ended early has fewer processes than others of its run."""
    found = sorted({r.speedup.processes for r in records if r.speedup})
    return f"95 % intervals hold {' or '.join(map(scope, found))}" if found else ""


def _case(case) -> str:
    return ", ".join(f"{k} {v}" for k, v in case.items())


def _table(rows: Sequence[Record], baseline: str | None, shares: Mapping[int, float]) -> str:
    times = {id(r): compared_time(r) for r in rows}
    colds = {id(r): _cold(r) for r in rows}
    unit, factor = time_unit(t.median for t in times.values() if t)
    mode = next((r.main for r in rows if r.main), "time")
    header = [
        "implementation",
        f"{mode} {unit}",
        "95 % interval",
        f"cold {unit}",
        "speed-up",
        "95 % interval",
        "verdict",
        "of roof",
        "max error",
        "marks",
    ]
    body = []
    for r in sorted(rows, key=lambda r: times[id(r)].median if times[id(r)] else float("inf")):
        t, cold, s = times[id(r)], colds[id(r)], r.speedup
        body.append(
            [
                short(r.impl),
                three(t.median * factor) if t else NA,
                _interval(t.low * factor, t.high * factor) if t else "",
                three(cold.median * factor) if cold else NA,
                ratio(s.median) if s else NA,
                _interval(s.low, s.high) if s else "",
                _verdict(r, baseline),
                percent(shares.get(id(r))),
                three(r.accuracy.max_abs) if r.accuracy else NA,
                ", ".join(
                    [
                        *(["did not converge"] if t and not t.converged else []),
                        *([s.of.replace("_", ", ")] if s and s.of != mode else []),
                        *marks(r),
                    ]
                ),
            ]
        )
    return table(header, body, "lrlrrllrrl")


def _interval(low: float, high: float) -> str:
    return "unknown" if unknown(low, high) else f"{three(low)} – {three(high)}"


def _verdict(record: Record, baseline: str | None) -> str:
    if record.status != "ok":
        return _WORDS.get(record.status, record.status)
    return "baseline" if record.impl == baseline else record.speedup.words if record.speedup else ""


def _cold(record: Record):
    """The cold time next to the one shown."""
    if record.main not in ("graph", "eager"):
        return None
    return record.time_of(f"{record.main}_cold")
