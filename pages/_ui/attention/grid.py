"""Attention over all masks and shapes measured on a device, in whichever run: the cells and their charts."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable

import pandas as pd
import plotly.graph_objects as go

from fusescope.charts import captions, numbers, template
from fusescope.charts.bench import attention_grid, attention_map
from fusescope.charts.bench.attention_grid import Cell
from fusescope.core.records import Record, Run
from fusescope.store import library
from pages._ui.app import cached_chart, device, run_data
from pages._ui.widgets import elements, screen, style
from pages._ui.widgets.text import device_text

_MOST = 200  # newest runs that are read
CHARTS = ("map", "worst first", "rates")
MODES = {"kernel time": "graph", "eager call": "eager"}


@dataclasses.dataclass(frozen=True)
class Grid:
    """The cells of one device and dtype in one timing mode, and the runs they come from, oldest first."""

    device_name: str
    dtype: str
    mode: str
    runs: tuple[Run, ...]
    cells: tuple[Cell, ...]

    @property
    def key(self) -> tuple:
        """What a chart of it depends on."""
        return self.device_name, self.dtype, self.mode, tuple(r.id for r in self.runs), len(self.cells)


def listed() -> list[Run]:
    """Runs of attention, oldest first: of several results for a kernel and case the newest counts."""
    found, _ = library.runs(kind="bench", op="attention", limit=_MOST)
    return sorted(found, key=lambda r: (r.created or 0, r.id))


def devices(runs: list[Run]) -> list[str]:
    """Names of the devices of ``runs``: the one that documents quote, then by the number of cells."""
    return sorted(_by_cells((run.device_name, run) for run in runs), key=lambda name: name != device.QUOTED)


def dtypes(runs: list[Run], device_name: str) -> list[str]:
    """The dtypes measured on a device, the one with most cells first."""
    return _by_cells((str(r.spec.get("dtype")), r) for r in runs if r.device_name == device_name)


def _by_cells(named: Iterable[tuple[str, Run]]) -> list[str]:
    cells: dict[str, int] = {}
    for name, run in named:
        cells[name] = cells.get(name, 0) + len(run.spec.get("cases") or ())
    return sorted(cells, key=lambda name: -cells[name])


def of_device(runs: list[Run], device_name: str, dtype: str, mode: str = "graph") -> Grid:
    """All cells of a device in ``runs``; on a CPU, whose records have no graph time, of eager calls."""
    runs = tuple(r for r in runs if r.device_name == device_name)
    if runs and all(str(r.spec.get("device")) == "cpu" for r in runs):
        mode = "eager"
    stamps = tuple((r.id, run_data.stamp(library.find(r.id), "results.jsonl")) for r in runs)
    made = cached_chart.once(("cells", dtype, mode, stamps), lambda: _cells(runs, dtype, mode))
    return Grid(device_name, dtype, mode, runs, made)


def run_of(grid: Grid, cell: Cell, impl: str, ms: float) -> tuple[Run, list[Record]]:
    """The run that a time of the cell is of, and all its records of the cell: ours and the best peer's may be
    of two. LookupError where no run has it."""
    case = json.loads(cell.case)
    for run in reversed(grid.runs):
        rows = [r for r in run_data.records(run.id) if r.dtype == grid.dtype and dict(r.case) == case]
        times = [r.time_of(cell.mode) for r in rows if r.impl == impl and r.status == "ok"]
        if any(t and t.median == ms for t in times):
            return run, rows
    raise LookupError(f"no run has the time of {impl}")


def draw(grid: Grid, chart: str, pick: Callable[[str], None] | None = None) -> None:
    """One of CHARTS with its table as CSV and the summary; ``pick(case key)`` is called on a click."""
    theme, narrow = style.theme(), screen.narrow()
    key = ("grid", chart, theme, narrow, *grid.key)
    fig = cached_chart.once(key, lambda: _figure(grid, chart, theme, narrow))
    fits = narrow and chart == CHARTS[0]
    # of one key: with another a browser draws the old chart again in it
    wide = None if fits else elements.WIDE
    elements.chart(fig, f"attention-{chart.replace(' ', '-')}", lambda: _table(grid), pick, wide=wide)
    elements.note(attention_grid.summary(list(grid.cells)))


def _figure(grid: Grid, chart: str, theme: str, narrow: bool) -> go.Figure:
    cells = list(grid.cells)
    subtitle = template.join(device_text(grid.device_name), grid.dtype, captions.mode(grid.mode))
    if chart == "worst first":
        return attention_grid.worst_first(cells, subtitle, theme)
    if chart == "rates":
        return attention_grid.rates(cells, _matrix_rate(grid), subtitle, theme)
    return attention_map.by_mask_and_shape(cells, subtitle, theme, narrow)


def _matrix_rate(grid: Grid) -> float | None:
    """The TFLOP/s of a large GEMM on the device, of the newest run that measured it."""
    rates = ((r.environment.get("ceilings") or {}).get("matrix_tflops") or {} for r in reversed(grid.runs))
    return next((rate[grid.dtype] for rate in rates if grid.dtype in rate), None)


def _cells(runs: tuple[Run, ...], dtype: str, mode: str) -> tuple[Cell, ...]:
    records = [r for run in runs for r in run_data.records(run.id) if r.dtype == dtype]
    return tuple(attention_grid.cells(records, mode))


def _table(grid: Grid) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {"mask": c.mask, "shape": c.shape, "dtype": c.dtype, "mode": c.mode}
            | {"ours": c.ours, "ours_ms": c.ours_ms, "peer": c.peer, "peer_ms": c.peer_ms, "ratio": c.ratio}
            | {"tflops": c.tflops, "executed_tflops": c.executed_tflops}
            for c in grid.cells
        ]
    )


def cell_name(cell: Cell) -> str:
    """A cell in a list: "bigbird · 16×12×2048×64 · 5.55×"."""
    return f"{attention_grid.mask_name(cell.mask)} · {cell.shape} · {numbers.ratio(cell.ratio)}"
