"""The records of a comparison with another implementation as the baseline, without measuring again."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from fusescope.analysis.compare import ratios
from fusescope.core.records import HEADLINE, Record, Speedup


def rebased(records: Iterable[Record], baseline: str) -> list[Record]:
    """The same records with speed-ups over ``baseline``, case by case.

    The ratio is that of the medians, with the interval of ``ratios.over``. A case in which the baseline has
    no time has no speed-up. What a record says of its clock is against the new baseline's, too.
    """
    records = list(records)
    base = {r.case_key: r for r in records if r.impl == baseline and r.status == "ok"}
    return [_over(r, base.get(r.case_key)) for r in records]


def choices(records: Sequence[Record]) -> list[str]:
    """The implementations that have a time in every case in which any has one, in the order of the records:
    what may be the baseline of all."""
    timed: dict[str, set[str]] = {}
    for r in records:
        if r.status == "ok":
            timed.setdefault(r.impl, set()).add(r.case_key)
    cases = set().union(*timed.values())
    return [impl for impl in timed if timed[impl] == cases]


def _over(record: Record, base: Record | None) -> Record:
    found = record.conditions and record.conditions.over(base and base.conditions)
    throttled = found.clock_note is not None if found else record.throttled
    return dataclasses.replace(record, speedup=_speedup(record, base), conditions=found, throttled=throttled)


def _speedup(record: Record, base: Record | None) -> Speedup | None:
    mode = next((m for m in HEADLINE if base and base.time_of(m) and record.time_of(m)), None)
    if mode is None or record.status != "ok":
        return None
    if record is base:
        return Speedup(mode, 1.0, 1.0, 1.0, converged=True)
    return ratios.over(base, record, mode)
