"""The pinned baseline of the session; whether a profile may be compared with another, and every figure of
both."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from fusescope.analysis.compare import profiled
from fusescope.analysis.profile import metrics as profile_metrics
from fusescope.analysis.profile.metrics import Change
from fusescope.charts import numbers
from fusescope.charts.profile import changes
from fusescope.core.errors import RunError
from fusescope.store import library
from pages._ui.app import url
from pages._ui.profiler import advice, data
from pages._ui.profiler.data import Profile
from pages._ui.widgets import elements
from pages._ui.widgets.text import md, run_name, sentence

_MARKS = {"better": "faster", "worse": "slower", "same": "same"}
_WHY = {
    "change": "neither more nor less is better, or one of the two is 0",
}


def pinned(state: url.State) -> str | None:
    """The run that is pinned, in the URL too; None for none."""
    key = state.seed("baseline", "")
    run_id = st.session_state[key]
    if run_id:
        try:
            run_id = library.find(run_id).name
        except RunError as error:
            state.problems.append(f"{sentence(error)}.")
            run_id = st.session_state[key] = ""
    state.keep("baseline", run_id)
    return run_id or None


def draw(state: url.State, found: Profile) -> None:
    """A button that pins this profile; with another one pinned, all figures against it."""
    other = pinned(state)
    if other in (None, found.id):
        text = "Unpin baseline" if other else "Pin as baseline"
        st.button(
            text,
            key="profiler/pin",
            on_click=_pin,
            args=("" if other else found.id,),
            help="All profiles opened from then on show their figures against it",
        )
        return
    a = data.load(other)
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.markdown(f"**Against the baseline** {md(run_name(a.run))}")
        st.button("Unpin", key="profiler/unpin", on_click=_pin, args=("",))
    found_with_a = judged(a, found)
    if not found_with_a.comparable:
        told(found_with_a)
    table(a, found, found_with_a, found.name("against-baseline"))


def judged(a: Profile, b: Profile) -> profiled.Answer:
    """Whether ``b`` may be compared with ``a``."""
    return profiled.judge(a.run, b.run, (a.rows("steps"), b.rows("steps")))


def told(answer: profiled.Answer) -> None:
    """Yes or no first, then why; after a yes, what to be careful about."""
    careful = answer.cautions or answer.work is None
    box = st.error if not answer.comparable else st.info if careful else st.success
    cautions = f"\n\nCautions: {md('; '.join(answer.cautions))}." if answer.cautions else ""
    box(f"**May b be compared with a? {md(answer.text)}**{cautions}")


def _pin(run_id: str) -> None:
    st.session_state["profiler/baseline"] = run_id


def table(a: Profile, b: Profile, answer: profiled.Answer, name: str) -> None:
    """One row per figure that both profiles have: a, b and, where the two may be compared, how many times
    better b is."""
    found = profile_metrics.compare(advice.metrics(a), advice.metrics(b))
    if not found:
        elements.note("The two profiles have no figure in common.")
        return
    lines = [
        {
            "figure": c.name,
            **({"change": _words(c)} if answer.comparable else {}),
            "baseline (a)": _value(c.a, c.unit),
            "this (b)": _value(c.b, c.unit),
        }
        for c in found
    ]
    raw = pd.DataFrame(
        [{"figure": c.name, "unit": c.unit, "a": c.a, "b": c.b, "times better": c.factor} for c in found]
    )
    raw = raw if answer.comparable else raw.drop(columns="times better")
    elements.table(pd.DataFrame(lines), name, raw, why=_WHY)


def _value(value: float, unit: str) -> str:
    if unit == "ns":
        return numbers.time(value / 1e6)
    if unit == "bytes":
        return numbers.size(value)
    return numbers.percent(value) if unit == "share" else numbers.three(value)


def _words(change: Change) -> str | None:
    if change.state == "same":
        return f"{changes.MARK['same']} same within {100 * profile_metrics.TOLERANCE:.0f} %"
    if change.factor is None or not change.state:
        return None
    times = numbers.ratio(max(change.factor, 1 / change.factor))
    words = {"ns": ("faster", "slower")}.get(change.unit, ("better", "worse"))
    return f"{changes.MARK[_MARKS[change.state]]} {times} {words[change.state == 'worse']}"
