"""The records of any number of runs as rows and columns: a row per implementation and case, a column per run
or per GPU, commit, dtype, mask or implementation."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from fusescope.analysis.compare.ratios import BETWEEN_RUNS, over, ratio
from fusescope.analysis.compare.workloads import Unlike, unlike
from fusescope.core.records import HEADLINE, Record, Run, Speedup, Time
from fusescope.core.schema.cases import FOLLOWS
from fusescope.core.verdict import SAME_WITHIN

BY = ("run", "GPU", "commit", "dtype", "mask", "implementation")
"""What a column may show."""
MISSING, SEVERAL = "missing", "several"
"""States of a cell besides those of a record: nothing was measured, or several cases of one run match."""


@dataclass(frozen=True)
class Cell:
    """What a column has for a row. status: the record's, MISSING or SEVERAL. time: of the row's mode, else
    the record's own headline time. ratio: time of the base column over this one's (> 1 is faster), None for
    the base itself and where there are not two times of one mode. unlike: why this ratio is no verdict on
    code, None where it is one."""

    status: str
    record: Record | None = None
    run: Run | None = None
    time: Time | None = None
    ratio: Speedup | None = None
    unlike: Unlike | None = None

    @property
    def verdict(self) -> Speedup | None:
        """The ratio where it is a verdict: of one workload on one device."""
        return None if self.unlike else self.ratio

    @property
    def difference(self) -> Speedup | None:
        """The ratio where it is none, but the difference of two devices or two workloads."""
        return self.ratio if self.unlike else None


@dataclass(frozen=True)
class Row:
    """One implementation on one case; None for what the columns vary, or what was left out. mode: that
    of the times which are compared."""

    op: str
    impl: str | None
    case: dict[str, Any]
    dtype: str | None
    device: str | None
    mode: str | None
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Comparison:
    """columns: what the cells of a row belong to, the base first (run ids where ``by`` is "run")."""

    by: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]

    def ratios(self, column: int) -> list[tuple[Row, Speedup]]:
        """The rows with a verdict in a column."""
        return [(row, cell.verdict) for row in self.rows if (cell := row.cells[column]).verdict]

    def differences(self, column: int) -> list[tuple[Row, Cell]]:
        """The rows with a ratio in a column that is no verdict."""
        return [(row, cell) for row in self.rows if (cell := row.cells[column]).difference]


@dataclass(frozen=True)
class Source:
    """A run with its records and, where it was seen, the median SM clock in MHz (store.compare.read)."""

    run: Run
    records: tuple[Record, ...]
    sm_mhz: float | None = None


def keys(sources: Sequence[Source]) -> list[str]:
    """What may be left out when cases are matched: the parameters of the cases, dtype and device."""
    found = dict.fromkeys(k for s in sources for r in s.records for k in r.case if k not in FOLLOWS)
    return [*found, "dtype", "device"]


def values(sources: Sequence[Source], by: str) -> list[str]:
    """The columns there are, in the order of the runs: what ``by`` is, of each record."""
    if by == "run":
        return [s.run.id for s in sources]
    return list(dict.fromkeys(_column(s, r, by) for s in sources for r in s.records))


def compare(
    sources: Sequence[Source],
    by: str = "run",
    left_out: Collection[str] = (),
    columns: Sequence[str] = (),
    left_open: Mapping[str, float] = MappingProxyType({}),
) -> Comparison:
    """Records matched by operator, implementation, case, dtype and kind of device, without what ``by`` or
    ``left_out`` names. columns: those to show, the base first; all where empty.

    Where several runs have a record for one cell, that of the newest run counts; where several cases of one
    run fall on it, none does. left_open: of runs, by id, what a ratio over another run leaves open at least
    (logarithmic; ``conditions.Answer.left_open``). ValueError for an unknown ``by``, key or column.
    """
    _check(sources, by, left_out, columns)
    columns = tuple(dict.fromkeys(columns or values(sources, by)))
    found: dict[str, dict[str, list[tuple[Source, Record]]]] = {}
    parts: dict[str, dict] = {}
    for source in sources:
        for record in source.records:
            if (column := _column(source, record, by)) in columns:
                part = _key(record, by, left_out)
                name = json.dumps(part, sort_keys=True, default=str)
                parts.setdefault(name, part)
                found.setdefault(name, {}).setdefault(column, []).append((source, record))
    rows = [
        _row(parts[name], [cells.get(c, []) for c in columns], left_open) for name, cells in found.items()
    ]
    return Comparison(by, columns, tuple(sorted(rows, key=_order)))


def helpful(sources: Sequence[Source], left_out: Collection[str] = ()) -> dict[str, tuple[int, int]]:
    """{key: (rows with a ratio, those of them with a verdict)} for the keys that, left out besides, match
    more cases of the runs; those that give verdicts first."""
    had, _ = _matched(sources, left_out)
    more = {k: _matched(sources, {*left_out, k}) for k in keys(sources) if k not in left_out}
    return {k: n for k, n in sorted(more.items(), key=lambda kn: (-kn[1][1], -kn[1][0])) if n[0] > had}


def _check(sources, by: str, left_out: Collection[str], columns: Sequence[str]) -> None:
    if by not in BY:
        raise ValueError(f"columns are by {', '.join(BY)}, not {by!r}")
    known = keys(sources)
    if unknown := [k for k in left_out if k not in known]:
        raise ValueError(f"{unknown[0]!r} cannot be left out; these cases have {', '.join(known)}")
    there = values(sources, by)
    if unknown := [c for c in columns if c not in there]:
        raise ValueError(f"there is no column {unknown[0]!r}; these runs have {', '.join(there) or 'none'}")


def _column(source: Source, record: Record, by: str) -> str:
    run = source.run
    if by == "run":
        return run.id
    if by == "GPU":
        return run.device_name
    if by == "commit":
        return str(run.environment.get("git_commit") or "unknown")[:10]
    if by == "mask":
        return str(record.case.get("mask") or "no mask")
    return record.dtype if by == "dtype" else record.impl


def _key(record: Record, by: str, left_out: Collection[str]) -> dict[str, Any]:
    gone = {*left_out} | ({by} if by in ("dtype", "mask") else {"device"} if by == "GPU" else set())
    case = {k: v for k, v in record.case.items() if k not in gone}
    for key, source in FOLLOWS.items():  # it is shown where it differs; what follows a key left out goes too
        if key in record.case and (record.case[key] == record.case.get(source) or source in gone):
            case.pop(key, None)
    return {
        "op": record.op,
        "impl": None if by == "implementation" else record.impl,
        "case": case,
        "dtype": None if "dtype" in gone else record.dtype,
        "device": None if "device" in gone else record.device.partition(":")[0],
    }


def _row(part: dict, cells: list[list[tuple[Source, Record]]], left_open: Mapping[str, float]) -> Row:
    chosen = [_chosen(found) for found in cells]
    timed = [c.record for c in chosen if c.record and c.record.time]
    mode = next((m for m in HEADLINE if timed and all(r.time_of(m) for r in timed)), None)
    base = chosen[0]
    return Row(**part, mode=mode, cells=tuple(_filled(cell, base, mode, left_open) for cell in chosen))


def _chosen(found: list[tuple[Source, Record]]) -> Cell:
    """The newest run's record; none where that run has several."""
    if not found:
        return Cell(MISSING)
    newest = max((s.run for s, _ in found), key=lambda run: (run.ended or 0.0, run.id))
    records = [r for s, r in found if s.run is newest]
    if len(records) > 1:
        return Cell(SEVERAL, run=newest)
    return Cell(records[0].status, records[0], newest)


def _filled(cell: Cell, base: Cell, mode: str | None, left_open: Mapping[str, float]) -> Cell:
    record = cell.record
    if record is None or not record.time:
        return cell
    time = record.time_of(mode) if mode else record.time
    if not (mode and cell is not base and base.record and base.record.time):
        return Cell(cell.status, record, cell.run, time)
    compared = _paired(cell, base, mode) or between(base, cell, mode, left_open)
    other = unlike((base.run, base.record), (cell.run, record))
    return Cell(cell.status, record, cell.run, time, compared, other if compared else None)


def between(
    base: Cell, cell: Cell, mode: str, left_open: Mapping[str, float] = MappingProxyType({})
) -> Speedup | None:
    """The ratio of two cells of a row, both with a time of this mode: ``ratios.over`` of one case of one run;
    else of the two times alone, with what two runs leave open (``compare``)."""
    first, second = base.record, cell.record
    one_run = base.run.id == cell.run.id
    if one_run and first.case_key == second.case_key:
        return over(first, second, mode)
    within = second.speedup.same_within if second.speedup else SAME_WITHIN
    least = 0.0
    if not one_run:
        least = max(BETWEEN_RUNS, *(left_open.get(c.run.id, 0.0) for c in (base, cell)))
    return ratio(first.time_of(mode), second.time_of(mode), mode, within, least)


def _paired(cell: Cell, base: Cell, mode: str) -> Speedup | None:
    """The speed-up with its paired interval, where one run measured just this: a case, over its baseline."""
    known, of_one_case = cell.record.speedup, cell.record.case_key == base.record.case_key
    is_baseline = cell.run is base.run and base.record.impl == cell.run.spec.get("baseline")
    return known if known and known.of == mode and of_one_case and is_baseline else None


def _matched(sources: Sequence[Source], left_out: Collection[str]) -> tuple[int, int]:
    rows = compare(sources, "run", left_out).rows
    counts = (sum(any(getattr(c, n) for c in row.cells) for row in rows) for n in ("ratio", "verdict"))
    return tuple(counts)


def _order(row: Row) -> tuple:
    """What changed most first: decided differences by size, then what is the same or undecided, then what is
    of other devices or workloads, then what is missing."""
    rank = {"slower": 0, "faster": 0, "same": 1, "inconclusive": 2}
    found = [
        (3 if c.unlike else rank[c.ratio.verdict], -abs(math.log(c.ratio.median)))
        for c in row.cells
        if c.ratio
    ]
    return min(found, default=(4, 0.0))
