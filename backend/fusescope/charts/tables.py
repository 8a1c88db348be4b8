"""Records as tables: one tidy form for CSV files (raw numbers, fixed units in the column names), one for
reading."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from fusescope.charts import numbers, verdicts
from fusescope.charts.bench.speedup import STATUS_WORDS, in_order, ratio_text, verdict
from fusescope.charts.colours import short
from fusescope.core.machine.conditions import are_unlike, device_of, marks
from fusescope.core.records import MODES, Record
from fusescope.core.schema.cases import value, varying_values

_NAMING = 6  # keys that a case may be named by without being shortened


def tidy(records: list[Record], baseline: str | None = None) -> pd.DataFrame:
    """One line per record, everything it holds, numbers unrounded: what "download CSV" writes."""
    lines = []
    for r in records:
        line = {
            "op": r.op,
            "impl": r.impl,
            **r.case,
            "dtype": r.dtype,
            "device": r.device,
            "status": r.status,
            "reason": r.reason,
        }
        line["verdict"] = verdict(r, baseline or "")
        s, a, q = r.speedup, r.accuracy, r.resources
        line |= {
            "speedup": s and s.median,
            "speedup_low": s and s.low,
            "speedup_high": s and s.high,
            "speedup_of": s and s.of,
        }
        line["first_ms"] = r.time_ms.first if r.time_ms else None
        for mode in MODES:
            t = r.time_of(mode)
            line |= {
                f"{mode}_ms": t and t.median,
                f"{mode}_ms_low": t and t.low,
                f"{mode}_ms_high": t and t.high,
                f"{mode}_n": t and t.n,
            }
        line |= {
            "tflops_effective": r.tflops and r.tflops.effective,
            "tflops_executed": r.tflops and r.tflops.executed,
            "gbps": r.gbps,
        }
        line |= {
            "max_abs": a and a.max_abs,
            "max_rel": a and a.max_rel,
            "cosine": a and a.cosine,
            "reference": a and a.reference,
        }
        line |= {
            "registers": q and q.registers,
            "shared_bytes": q and q.shared,
            "spills_bytes": q and q.spills,
            "occupancy": q and q.occupancy,
        }
        line |= {"throttled": r.throttled, "backend": r.backend, "source_hash": r.source_hash}
        lines.append(line)
    return pd.DataFrame(lines)


def readable(records: list[Record], baseline: str) -> pd.DataFrame:
    """The same, readable, in the order given: whether it is correct, what it is, the verdict and the main
    figures, one unit per column (in its heading), None where a value does not apply."""
    unit, factor = numbers.time_unit(r.ms for r in records)
    first_unit, to_first = numbers.time_unit(r.time_ms.first for r in records if r.time_ms)
    keys = varying(records)
    lines = []
    for r in records:
        t = r.time
        cold = (r.time_ms.graph_cold or r.time_ms.eager_cold) if r.time_ms else None
        first = r.time_ms.first if r.time_ms else None
        s = r.speedup if r.impl != baseline else None
        lines.append(
            {"check": check(r), "implementation": short(r.impl)}
            | {k: value(r.case, k) for k in keys}
            | {
                "verdict": ratio_text(r, baseline),
                "95 % interval (×)": (s and verdicts.interval(s.words, s.low, s.high)) or None,
                f"warm ({unit})": t and t.median * factor,
                f"cold ({unit})": cold and cold.median * factor,
                "note": note(r, baseline),
                "max abs error": r.accuracy.max_abs if r.accuracy else None,
                "TFLOP/s effective": r.tflops.effective if r.tflops else None,
                "GB/s": r.gbps,
                f"first call ({first_unit})": first and first * to_first,
                "samples": t.n if t else None,
                "ran as": ran_as(r),
            }
        )
    return whole(pd.DataFrame(lines), "samples")


def check(record: Record) -> str:
    """What the check against the reference said: "✓ correct", "✗ wrong", or why there was none."""
    signs = {"ok": "✓ correct", "wrong": "✗ wrong", "unsupported": "– unavailable"}
    return signs.get(record.status) or f"! {STATUS_WORDS[record.status]}"


def ordered(records: list[Record]) -> list[Record]:
    """Records of one or several cases as charts list them: case by case, fastest first."""
    return [r for rows in cases(records).values() for r in in_order(rows)]


def why(records: list[Record], baseline: str) -> Callable[[int, str], str]:
    """Why a cell of ``readable`` is empty, by (row number, column)."""

    def reason(row: int, column: str) -> str:
        r = records[row]
        if column in r.case or column in varying(records):
            return "not given; derived from the other parameters"
        if r.status != "ok":
            return f"{verdict(r, baseline)}: {r.reason}"
        if column == "95 % interval (×)" and r.impl != baseline and r.speedup:
            return verdicts.no_interval(r)
        if column in ("95 % interval (×)", "verdict"):
            return (
                "the baseline itself"
                if r.impl == baseline
                else f"no time of the baseline {short(baseline)} to compare with"
            )
        if column.startswith("warm"):
            return "warm times were not requested"
        if column.startswith("cold"):
            return "cold times were not requested"
        if column == "max abs error":
            return "not recorded"
        if column in ("TFLOP/s effective", "GB/s"):
            return "the operator's cost has no such figure"
        return "not recorded"

    return reason


def whole(data: pd.DataFrame, *columns: str) -> pd.DataFrame:
    """The same table with these columns as whole numbers that may be missing; pandas would make them 96.0."""
    return data.astype({c: "Int64" for c in columns if c in data.columns})


def ran_as(record: Record) -> str | None:
    """What a record says that it ran as; of a user's file its name, without the folder."""
    name = record.backend
    return name.rpartition("/")[2] if name and name.endswith(".py") else name


def note(record: Record, baseline: str) -> str:
    """Why a record has no time; else what marks it, why its interval is left wider than others are, and
    whether its warm time is above its cold one."""
    if record.reason:
        return record.reason
    loose = "did not converge" if record.time and not record.time.converged else ""
    wide = verdicts.widened(record) if record.impl != baseline else ""
    told = wide or loose, verdicts.warm_above_cold(record), *marks(record)
    return ", ".join(text for text in told if text)


def varying(records: list[Record]) -> list[str]:
    """The case keys that differ among the records: the only ones a table need show."""
    return list(varying_values([dict(r.case) for r in records]))


def _naming(records: list[Record]) -> list[str]:
    """Of the keys that differ those that a case is named by: where they are many, without those whose value
    follows from the ones before."""
    keys = varying(records)
    if len(keys) <= _NAMING:
        return keys
    named: list[str] = []
    for key in keys:
        known: dict[tuple, str] = {}
        for r in records:
            own = value(r.case, key)
            if known.setdefault(tuple(value(r.case, k) for k in named), own) != own:
                named.append(key)
                break
    return named


def cases(records: list[Record]) -> dict[str, list[Record]]:
    """Records grouped by case, in the order they came; the key names what varies ("seq=512"), or "the
    case", and the device where there are unlike ones."""
    keys, unlike = _naming(records), are_unlike(records)
    groups: dict[str, list[Record]] = {}
    for r in records:
        name = ", ".join(f"{k}={value(r.case, k)}" for k in keys) or "the case"
        groups.setdefault(f"{name}, {device_of(r)}" if unlike and device_of(r) else name, []).append(r)
    return groups
