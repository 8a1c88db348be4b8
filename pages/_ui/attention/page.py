"""The Attention page: device, dtype and timing; the map; and the comparison behind the chosen cell."""

from __future__ import annotations

import streamlit as st

from fusescope.charts import numbers
from fusescope.charts.bench.attention_grid import Cell, lost, mask_name
from pages._ui.answer import answer
from pages._ui.app import url
from pages._ui.attention import grid
from pages._ui.forms import fields
from pages._ui.widgets.text import device_text, md, run_name

_ANY = "all"


def draw(state: url.State) -> None:
    """The whole page."""
    runs = grid.listed()
    known = grid.devices(runs)
    if not known:
        st.markdown("**No attention was measured yet**, and no recorded run ships with this checkout.")
        st.page_link(
            "pages/kernels.py", label="Compare attention kernels →", query_params={"op": "attention"}
        )
        return
    row = st.container(horizontal=True, vertical_alignment="bottom", gap="small")
    name = fields.pick(state, "on", "device", known, box=row, width=180, format_func=device_text)
    dtype = fields.pick(state, "dtype", "dtype", grid.dtypes(runs, name), box=row, width=130)
    time = fields.pick(state, "time", "time", list(grid.MODES), box=row, width=150, help=_TIME)
    found = grid.of_device(runs, name, dtype, grid.MODES[time])
    mask = fields.pick(state, "mask", "mask", _names(found, "mask"), box=row, width=190)
    shape = fields.pick(state, "shape", "shape", _names(found, "shape"), box=row, width=190, help=_SHAPE)
    chart = fields.pick(
        state, "chart", "chart", grid.CHARTS, box=row, form="segmented_control", required=True
    )
    if not found.cells:
        st.info(f"No case in {dtype} on {md(device_text(name))} has {time}s of both our kernels and a peer.")
        return
    chosen = [c for c in found.cells if _fits(c, mask, shape)]
    if not chosen:
        st.info(f"{md(mask)} was not measured at {shape} on {md(device_text(name))}.")
        return
    only = grid.Grid(found.device_name, found.dtype, found.mode, found.runs, tuple(chosen))
    grid.draw(only, chart, lambda case: _choose(state, case))
    _comparison(state, only)


_TIME = "kernel time: graph replay without launch overhead; eager call: as Python calls it"
_SHAPE = "batch × heads × sequence × head size"


def _names(found: grid.Grid, what: str) -> list[str]:
    values = (mask_name(c.mask) if what == "mask" else c.shape for c in found.cells)
    return [_ANY, *dict.fromkeys(values)]


def _fits(cell: Cell, mask: str, shape: str) -> bool:
    return mask in (_ANY, mask_name(cell.mask)) and shape in (_ANY, cell.shape)


def _choose(state: url.State, case: str) -> None:
    """A click on a cell (a callback)."""
    st.session_state[f"{state.page}/cell"] = case


def _comparison(state: url.State, found: grid.Grid) -> None:
    """All implementations of the chosen cell in one run, over the best peer, as the map has it; at first of
    the worst that is proven slower, which the summary names."""
    cells = {c.case: c for c in sorted(found.cells, key=lambda c: c.ratio)}
    worst = next(iter(lost(found.cells) or cells.values())).case
    key = fields.seeded(state, "cell", list(cells), worst)
    names = {text: grid.cell_name(cell) for text, cell in cells.items()}
    fields.relabelled(key, names[st.session_state[key]])  # another device has another ratio of the same cell
    case = st.selectbox(
        "cell, slowest first",
        list(cells),
        key=key,
        format_func=names.get,
        help="Or click it in the chart",
    )
    state.keep("cell", case, worst)
    cell = cells[case]
    run, rows = grid.run_of(found, cell, cell.peer, cell.peer_ms)
    answer.heading(run)
    ours, _ = grid.run_of(found, cell, cell.ours, cell.ours_ms)
    if ours.id != run.id:
        other = f"[{md(run_name(ours))}]({url.link('runs', run=ours.id)})"
        st.caption(
            f"The map compares it with {md(cell.ours)}, {numbers.time(cell.ours_ms)}, of another run: {other}"
        )
    over = answer.compared_with(state, run, rows, cell.peer)
    answer.headline(answer.look(run, rows, answer.ALL, over))
