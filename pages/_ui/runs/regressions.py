"""Over all runs: what is slower now than it was, and one implementation's time over its commits."""

from __future__ import annotations

import json

import streamlit as st

from fusescope import ops
from fusescope.analysis.compare import regressions
from fusescope.analysis.compare.regressions import Series
from fusescope.charts import captions
from fusescope.charts.bench import history
from fusescope.charts.colours import short
from fusescope.core.machine import commits
from fusescope.store import compare
from pages._ui.app import run_data, url
from pages._ui.forms import fields
from pages._ui.widgets import elements, style
from pages._ui.widgets.text import device_text, md

_ANY = "any"
_TALL = 260  # pixels of a table: the chart under it stays in sight
_WHY = {"now is": "a time is not positive"}


def draw(state: url.State) -> None:
    """The alarms as a sentence and a table, what is undecided, the rest folded, and one implementation over
    all runs as a chart."""
    left, right = st.columns([1, 3], gap="small")
    op = fields.pick(state, "op", "operator", [_ANY, *ops.names()], box=left)
    found = _series(None if op == _ANY else op, run_data.state())
    alarms, judged = regressions.alarms(found), regressions.changes(found)
    st.markdown(f"**{md(history.alarm_sentence(found, alarms))}**")
    names = {name(one): one for one, _ in judged}
    if not names:
        return
    filtered = {"box": right, "filter_mode": fields.IN_LINES}
    chosen = names[fields.pick(state, "series", "implementation and case", list(names), **filtered)]
    subjects = commits.subjects({p.commit for one in names.values() for p in one.points})
    about = history.commits(list(names.values()), subjects)
    if alarms:
        elements.table(history.alarm_table(alarms), "regressions", height=_TALL, why={}, about=about)
    if undecided := [pair for pair in judged if pair[1].open]:
        st.markdown(f"**Undecided: {len(undecided):,}**, the largest slow-down first")
        table = history.undecided_table(undecided)
        elements.table(table, "undecided", height=_TALL, why=_WHY, about=about)
    if rest := [pair for pair in judged if not (pair[1].open or pair[1].slower)]:
        with st.expander(f"Not slower: {len(rest):,}"):
            elements.table(history.table(rest), "not-slower", height=_TALL, why=_WHY, about=about)
    edits = _edits(chosen)
    subtitle = (
        f"{device_text(chosen.device_name)} · {chosen.dtype} · {captions.case_of(json.loads(chosen.case))}"
    )
    fig = history.steps(edits, chosen.impl, subtitle, style.theme(), subjects)
    elements.chart(fig, f"history-{chosen.impl}")
    elements.note(
        "An alarm compares the newest run with the fastest earlier one: all of the 95 % interval of the "
        f"ratio must lie beyond {100 * regressions.THRESHOLD:g} %. The cause is the code where the source "
        "changed and what did not change is as fast as before. Sampling that did not converge and a busy "
        "machine raise none."
    )


def name(one: Series) -> str:
    """A series as a line of a list."""
    case = captions.case_of(json.loads(one.case))
    return f"{short(one.impl)} · {one.op} · {case} · {one.dtype} · {device_text(one.device_name)}"


@st.cache_data(max_entries=8, show_spinner="Reading all runs")
def _series(op: str | None, state: int) -> list[Series]:
    return regressions.series(compare.history(op))


def _edits(one: Series) -> list[history.Edit]:
    """The records behind a series; of several of one run the last counts."""
    found = []
    for point in one.points:
        matching = [
            r
            for r in run_data.records(point.run)
            if (r.op, r.impl, r.dtype) == (one.op, one.impl, one.dtype)
            and json.dumps(dict(r.case), sort_keys=True) == one.case
        ]
        found += [history.Edit(run_data.read(point.run), r) for r in matching[-1:]]
    return found
