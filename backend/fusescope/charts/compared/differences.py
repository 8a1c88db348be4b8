"""Ratios of times that are no verdict on code, in words: of two devices, or of two workloads."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fusescope.analysis.compare import source_code, workloads
from fusescope.analysis.compare.columns import Cell, Comparison, Row
from fusescope.analysis.compare.workloads import Unlike
from fusescope.charts import captions, numbers, verdicts


def sentence(comparison: Comparison, column: int, letters: Sequence[str]) -> str:
    """What a column's ratios without a verdict say: "C compared with A, no verdict (other device: …): H200
    takes 1.04× the time of H100 in the geometric mean of 680 rows; …"; "" without one. Of two devices the
    rows count whose source is the same, where there are some."""
    found = comparison.differences(column)
    if not found:
        return ""
    own, base = letters[column], letters[0]
    differ = workloads.together(cell.unlike for _, cell in found)
    head = f"{own} compared with {base}, no verdict ({differ.text}): "
    same = [pair for pair in found if source(pair[0], column) == "same"]
    apart = bool(differ.devices and same)
    counted = same if apart else found
    text = head + _said([c for _, c in counted], *_names(differ, base, own), len(same) == len(counted))
    if rest := len(found) - len(same):
        rows = f"{rest:,} {'further ' * apart}row{'s' * (rest > 1)}{' of these' * (not apart)}"
        text += f" In {rows} the source differs as well, or is not known."
    return text


def _said(cells: Sequence[Cell], base: str, own: str, same: bool) -> str:
    """The mean and the ends of some rows."""
    ratios = [cell.difference.median for cell in cells]
    if len(ratios) == 1:
        return f"{_takes(ratios[0], base, own)} {_ends(cells[0])}".rstrip() + " in one row."
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    rows = f"{len(ratios):,} rows{' with the same source' * same}"
    ends = " and ".join(_takes(x, base, own) for x in dict.fromkeys((max(ratios), min(ratios))))
    return f"{_takes(mean, base, own)} in the geometric mean of {rows}; at the ends, {ends}."


def source(row: Row, column: int) -> str:
    """Whether a row's two records are of one source: "same", "edited" or "unknown"."""
    if row.impl is None:
        return "unknown"
    sides = [(cell.run, cell.record.source_hash) for cell in (row.cells[0], row.cells[column])]
    return source_code.compared(row.op, row.impl, *sides)


def words(cell: Cell, base: str, own: str) -> str:
    """Next to a bar: "A takes 1.65× the time [1.55, 1.74]"; the larger time is the subject."""
    return f"{_takes(cell.difference.median, base, own)} {_ends(cell)}".rstrip()


def times(cell: Cell) -> tuple[float, float, float] | None:
    """This time over the base's with its interval; None where the ratio is a verdict, or there is none."""
    d = cell.difference
    return (1 / d.median, 1 / d.high, 1 / d.low) if d else None


def kinds(unlike: Unlike) -> list[str]:
    """Why there is no verdict, in two words each."""
    return ["other workload"] * bool(unlike.workload) + ["other device"] * bool(unlike.devices)


def _takes(ratio: float, base: str, own: str) -> str:
    """``ratio``: the base's time over this one's."""
    first, second = (base, own) if ratio >= 1 else (own, base)
    return f"{first} takes {numbers.ratio(max(ratio, 1 / ratio))} the time of {second}"


def _ends(cell: Cell) -> str:
    d = cell.difference
    return verdicts.interval("faster" if d.median >= 1 else "slower", d.low, d.high)


def _names(differ: Unlike, base: str, own: str) -> tuple[str, str]:
    """What takes the time: the devices, where they alone differ, else the columns."""
    if differ.workload or not differ.devices:
        return base, own
    first, second = map(captions.short_device, differ.devices)
    return (first, second) if first != second else differ.devices
