"""Which of several runs is best, as one sentence."""

from __future__ import annotations

from collections import Counter

from fusescope.analysis.compare import columns
from fusescope.analysis.compare.columns import Comparison, Row
from fusescope.charts.bench import pairs


def sentence(comparison: Comparison) -> str:
    """ "B is proven fastest in 5 of 8 rows, C in 1; none in 2." Over the rows that every column has a time
    for; a row counts for the column that is proven faster than each other one."""
    names = pairs.names(comparison)
    rows = [row for row in comparison.rows if row.mode and all(cell.time for cell in row.cells)]
    if not rows:
        return f"which is best cannot be said: {_listed(names)} have no timed row in common."
    fastest = list(map(_fastest, rows))
    won = Counter(n for n in fastest if n is not None).most_common()
    several = len(rows) > 1
    if not won:
        return f"none of {_listed(names)} is proven fastest{f' in any of {len(rows):,} rows' * several}."
    first, count = won[0]
    text = f"{names[first]} is proven fastest" + f" in {count:,} of {len(rows):,} rows" * several
    text += "".join(f", {names[n]} in {count:,}" for n, count in won[1:])
    unclear = fastest.count(None)
    return text + (f"; none in {unclear:,}." if unclear else ".")


def _fastest(row: Row) -> int | None:
    """The column that is proven faster than each other one of a row; None without one."""
    first = min(range(len(row.cells)), key=lambda n: row.cells[n].time.median)
    others = [cell for n, cell in enumerate(row.cells) if n != first]
    found = [columns.between(other, row.cells[first], row.mode) for other in others]
    return first if all(r and r.verdict == "faster" for r in found) else None


def _listed(names: list[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"
