"""Why ratios between two runs are inconclusive, and what would narrow their intervals, in words."""

from __future__ import annotations

from fusescope.analysis.compare.columns import Cell, Comparison
from fusescope.analysis.compare.ratios import BETWEEN_RUNS
from fusescope.analysis.statistics import allowance
from fusescope.charts import verdicts
from fusescope.core.verdict import LEFT_OPEN


def sentence(comparison: Comparison, column: int) -> str:
    """ "Inconclusive: 63 did not converge (a factor of 1.5 is left open), 90 … . A larger budget …"; "" where
    no ratio between two runs is."""
    cells = [(row.cells[0], row.cells[column]) for row in comparison.rows]
    found = [
        (base, cell)
        for base, cell in cells
        if cell.verdict and cell.verdict.verdict == verdicts.INCONCLUSIVE and base.run.id != cell.run.id
    ]
    if not found:
        return ""
    loose = sum(not cell.verdict.converged for _, cell in found)
    few = sum(bool(cell.verdict.converged and _few(base, cell)) for base, cell in found)
    close = len(found) - loose - few
    verb = "is" if close == 1 else "are"
    causes = [
        (loose, f"did not converge in one of the runs (a factor of {LEFT_OPEN:g} is left open)"),
        (few, f"{'has' if few == 1 else 'have'} too few samples (up to 25 % is left open)"),
        (close, f"{verb} too close for two runs ({100 * BETWEEN_RUNS:.0f} % is left open)"),
    ]
    text = "Inconclusive: " + ", ".join(f"{count:,} {why}" for count, why in causes if count) + "."
    if loose or few:
        text += " More time for each case (budget) narrows the intervals."
    if close:
        text += f" {'For the last, measure' if loose or few else 'Measure'} both in one run, in turn."
    return text


def _few(base: Cell, cell: Cell) -> bool:
    return allowance(max(1, min(base.time.n, cell.time.n))) > BETWEEN_RUNS
