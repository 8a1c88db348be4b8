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
from fusescope.store import compare
from pages._ui.app import run_data, url
from pages._ui.forms import fields
from pages._ui.widgets import elements, style
from pages._ui.widgets.text import device_text, md

_ANY = "any"


def draw(state: url.State) -> None:
    """The alarms as a sentence and a table, and one implementation over all runs as a chart."""
    left, right = st.columns([1, 3], gap="small")
    op = fields.pick(state, "op", "operator", [_ANY, *ops.names()], box=left)
    found = _series(None if op == _ANY else op, run_data.state())
    alarms = regressions.alarms(found)
    st.markdown(f"**{md(history.alarm_sentence(found, alarms))}**")
    names = {name(one): one for one in [*(a.series for a in alarms), *regressions.followed(found)]}
    if not names:
        return
    chosen = names[fields.pick(state, "series", "implementation and case", list(names), box=right)]
    edits = _edits(chosen)
    subtitle = (
        f"{device_text(chosen.device_name)} · {chosen.dtype} · {captions.case_of(json.loads(chosen.case))}"
    )
    elements.chart(history.steps(edits, chosen.impl, subtitle, style.theme()), f"history-{chosen.impl}")
    if alarms:
        elements.table(history.alarm_table(alarms), "regressions")
    if undecided := regressions.undecided(found):
        elements.table(history.undecided_table(undecided), "undecided")
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
