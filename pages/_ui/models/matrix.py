"""All models on one page: of each shape measured on a device the fastest execution mode; a click opens its
comparison."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import streamlit as st

from fusescope import models
from fusescope.charts import captions, tables, template
from fusescope.charts.models import matrix
from fusescope.charts.models.matrix import Cell
from fusescope.core.records import Record, Run
from fusescope.store import library
from pages._ui.answer import answer
from pages._ui.app import cached_chart, run_data, url
from pages._ui.forms import fields
from pages._ui.widgets import elements, screen, style
from pages._ui.widgets.text import device_text

_MOST = 200  # newest runs that are read
_ENOUGH = 0.5  # share of the most modes measured on a case that a newer run needs in order to be preferred
_FASTEST = "fastest"


def draw(state: url.State) -> None:
    """Device, dtype and execution mode; the matrix; and the comparison behind the chosen cell."""
    runs = _runs()
    if not runs:
        st.markdown("**No model was measured yet**, and no recorded run ships with this checkout.")
        return
    row = st.container(horizontal=True, vertical_alignment="bottom", gap="small")
    devices = [name for name, _ in Counter(r.device_name for r in runs).most_common()]
    name = fields.pick(state, "on", "device", devices, box=row, width=200, format_func=device_text)
    here = [r for r in runs if r.device_name == name]
    dtypes = list(dict.fromkeys(str(r.spec.get("dtype")) for r in here))
    dtype = fields.pick(state, "matrix_dtype", "dtype", dtypes, box=row, width=130)
    here = [r for r in here if r.spec.get("dtype") == dtype]
    modes = list(dict.fromkeys(i for r in here for i in r.spec.get("impls") or ()))
    mode = fields.pick(state, "mode", "execution mode", [_FASTEST, *modes], box=row, width=220)
    stamps = tuple((r.id, run_data.stamp(library.find(r.id), "results.jsonl")) for r in here)
    found = cached_chart.once(
        ("cells of models", mode, stamps),
        lambda: matrix.cells(_groups(here), None if mode == _FASTEST else mode),
    )
    theme, subtitle = style.theme(), template.join(device_text(name), dtype)
    key = ("models", name, dtype, mode, theme, stamps)
    fig = cached_chart.once(key, lambda: matrix.figure(found, subtitle, theme))
    if narrow := screen.narrow() and bool(found):
        elements.table(matrix.table(found), "models-by-line", why={})
    box = st.expander("As a map, scrolled sideways") if narrow else st.container()
    with box:
        elements.chart(
            fig,
            "models-by-shape",
            lambda: tables.tidy([c.record for c in found]).assign(over=[c.over for c in found]),
            lambda chosen: st.session_state.update({f"{state.page}/cell": chosen}),
            wide=elements.WIDE,
        )
    elements.note(matrix.summary(found))
    if found:
        _comparison(state, found)


def _comparison(state: url.State, found: list[Cell]) -> None:
    """All execution modes of the chosen cell."""
    cells = {c.key: c for c in found}
    key = fields.seeded(state, "cell", list(cells), next(iter(cells)))
    chosen = st.selectbox(
        "cell",
        list(cells),
        key=key,
        format_func=lambda text: f"{cells[text].row} · {cells[text].column}",
        help="Or click a cell of the chart",
    )
    state.keep("cell", chosen, next(iter(cells)))
    run_id, case = json.loads(chosen)
    run = run_data.read(run_id)
    rows = [r for r in run_data.records(run_id) if dict(r.case) == case]
    answer.heading(run)
    over = cells[chosen].over
    answer.headline(answer.look(run, rows, answer.ALL, over if any(r.impl == over for r in rows) else None))
    query = {"model": models.named(str(run.spec["op"])), "run": run_id}
    st.page_link("pages/models.py", label="Open with all views →", query_params=query)


def _runs() -> list[Run]:
    """Comparisons of models that are known here, newest first."""
    known = {models.op(name) for name in models.names()}
    return [r for r in library.runs(kind="model", limit=_MOST)[0] if r.spec.get("op") in known]


def _groups(runs: list[Run]) -> Iterator[tuple[str, str, list[Record]]]:
    """(run, title of the model, records) of each case: of the newest run that has at least half as many modes
    with a time as the one that has most."""
    measured: dict[tuple[str, str], list[tuple[Run, list[Record]]]] = {}
    for run in runs:
        for rows in tables.cases(run_data.records(run.id)).values():
            if any(r.status == "ok" for r in rows):
                measured.setdefault((_title(run, rows[0]), captions.case(rows[0])), []).append((run, rows))
    for (title, _), found in measured.items():
        most = max(_timed(rows) for _, rows in found)
        run, rows = next((run, rows) for run, rows in found if _timed(rows) >= _ENOUGH * most)
        yield run.id, title, rows


def _title(run: Run, record: Record) -> str:
    """The model, with sizes that are not its own: "BERT base, layers 2"."""
    name = models.named(record.op)
    if run.spec.get("checkpoint"):
        return f"{models.title(name)} of {Path(str(run.spec['checkpoint'])).name}"
    usual = {p.name: p.default for p in models.parameters(name) if p.name in ("layers", "heads", "head_dim")}
    own = [f"{key.replace('_', ' ')} {record.case[key]}" for key in usual if record.case[key] != usual[key]]
    return ", ".join([models.title(name), *own])


def _timed(rows: list[Record]) -> int:
    return sum(r.status == "ok" for r in rows)
