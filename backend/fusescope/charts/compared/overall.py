"""Which of several runs is best, as one sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from fusescope.analysis.compare import columns
from fusescope.analysis.compare.columns import Comparison, Row
from fusescope.analysis.compare.workloads import unlike
from fusescope.charts.compared import pairs


def sentence(comparison: Comparison, groups: Sequence[Sequence[int]] = ()) -> str:
    """ "B is proven fastest in 5 of 8 rows, C in 1; none in 2." Over the rows that every column has a time
    for; a row counts for the column that is proven faster than each other one.

    groups: the columns that may be compared with one another, all where empty; of several groups each has
    its sentence, "of A and B, …", and what is in none is named."""
    names = pairs.names(comparison)
    groups = groups or [range(len(names))]
    if len(groups) == 1:
        return _of(comparison, list(groups[0]))
    said = [
        f"of {_listed([names[n] for n in group])}, {_of(comparison, list(group))}"
        for group in groups
        if len(group) > 1
    ]
    alone = [names[group[0]] for group in groups if len(group) == 1]
    if not said:
        return f"no two of {_listed(names)} may be compared, so none is best."
    text = " ".join([said[0], *(one[0].upper() + one[1:] for one in said[1:])])
    if alone:
        text += f" {_listed(alone)} may be compared with none of the others."
    return text


def _of(comparison: Comparison, group: list[int]) -> str:
    """The sentence of the columns of a group."""
    names = [pairs.names(comparison)[n] for n in group]
    rows = [row for row in comparison.rows if row.mode and _alike(row, group)]
    if not rows:
        return f"which is best cannot be said: {_listed(names)} have no timed row in common."
    fastest = [_fastest(row, group) for row in rows]
    won = Counter(n for n in fastest if n is not None).most_common()
    several = len(rows) > 1
    if not won:
        return f"none of {_listed(names)} is proven fastest{f' in any of {len(rows):,} rows' * several}."
    names = pairs.names(comparison)
    first, count = won[0]
    text = f"{names[first]} is proven fastest" + f" in {count:,} of {len(rows):,} rows" * several
    text += "".join(f", {names[n]} in {count:,}" for n, count in won[1:])
    unclear = fastest.count(None)
    return text + (f"; none in {unclear:,}." if unclear else ".")


def _alike(row: Row, group: list[int]) -> bool:
    """Whether all columns of the group have a time of one workload on one device."""
    cells = [row.cells[n] for n in group]
    first = cells[0]
    return all(cell.time for cell in cells) and not any(
        unlike((first.run, first.record), (cell.run, cell.record)) for cell in cells[1:]
    )


def _fastest(row: Row, group: list[int]) -> int | None:
    """The column that is proven faster than each other one of a group; None without one."""
    first = min(group, key=lambda n: row.cells[n].time.median)
    others = [row.cells[n] for n in group if n != first]
    found = [columns.between(other, row.cells[first], row.mode) for other in others]
    return first if all(r and r.verdict == "faster" for r in found) else None


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
