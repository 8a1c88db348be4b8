"""Which run a page shows, and whether it is the result for the current settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import streamlit as st

from fusescope.charts import captions, tables
from fusescope.charts.colours import short
from fusescope.core.errors import RunError
from fusescope.core.records import Run
from fusescope.jobs import submit
from pages._ui.answer import form_query, nearest, workers
from pages._ui.app import run_data, url
from pages._ui.forms import busy
from pages._ui.widgets.text import md

_NO_SETTINGS = {"run", "view", "case", "over", "device", "recorded_on", "before", "shares"}
"""What a link may say besides a run without choosing settings of the form."""
_WHOSE = {"op", "model"}
"""What a link may say of the run itself."""
_ELSEWHERE = ("device", "impls", "baseline", "cache")
_NAMED = 3  # differences that are listed one by one
Names = Mapping[str, str]
"""The keys of a specification that make a result what it is, and what each is called."""


def shown(
    state: url.State,
    kind: str,
    op: str | None,
    spec: Mapping | None,
    pressed: bool,
    names: Names,
    called: str,
) -> str | None:
    """The run to show: the one that was just started, else the URL's or the last one opened, else this
    machine's newest of ``op``, where one is given; None without any. ``called``: what a run of the kind is
    called."""
    key = state.seed("run_id", state.query.get("run"))
    pressed = st.session_state.pop(_pressed(state.page), False) or pressed
    if pressed and spec and not _running(st.session_state[key], spec, names):
        start(state.page, kind, spec)
    if st.session_state[key] and not _of_kind(state, st.session_state[key], kind, called):
        st.session_state[key] = None
    run_id = st.session_state[key]
    state.keep("run", run_id)
    if run_id and (run := run_data.read(run_id)).status == "cancelled" and not run_data.has_records(run_id):
        st.caption(f"The run of {captions.when(run)} was cancelled before any result.")
        run_id = None
    latest = run_data.newest(kind, op, recorded=False) if op and not run_id else None
    return latest.id if latest else run_id


def start(page: str, kind: str, spec: Mapping) -> None:
    """Submit a job and show its run on the page."""
    follow(page, submit.submit(kind, dict(spec) | busy.chosen(kind) | workers.chosen(page, kind)))


def follow(page: str, run_id: str) -> None:
    """Have the page show a run that was just started (in a callback): its progress, then its result. The
    page of a run has its address in place of a form's."""
    st.session_state[f"{page}/previous"] = st.session_state.get(f"{page}/shown")
    st.session_state[f"{page}/run_id"] = run_id
    st.session_state[f"{page}/before"] = None
    if page == "runs":
        st.query_params.from_dict({"run": run_id})


def _pressed(page: str) -> str:
    """Where the session keeps that a button next to a result asks for a run."""
    return f"{page}/pressed"


def _press(page: str) -> None:
    """As pressing Run: the next drawing starts what the form says then (a callback, which would itself have
    the settings of the drawing before, without what was typed since)."""
    st.session_state[_pressed(page)] = True


def first(title: str, page: str, spec: Mapping | None, compared: str = "implementations") -> None:
    """The empty state: three steps and one button; ``compared``: what the form has to choose from."""
    st.markdown(
        f"**{title}** has not been measured here yet.\n"
        f"1. Choose the {compared} and the shape in the form.\n"
        "2. Press Run: each is checked against a float64 reference, then timed in turn with the others.\n"
        "3. Read the sentence that appears here: what is correct, what is fastest, by how much, how surely."
    )
    st.button(
        "Run a first comparison",
        type="primary",
        disabled=spec is None,
        key="empty/run",
        on_click=_press,
        args=(page,),
    )


def fill(state: url.State, kind: str, able: Callable[[Run], Iterable[str]]) -> None:
    """Take the settings of the run that a link opens into the form, where the link has none of its own.
    ``able``: the implementations of the run's operator that can run here."""
    own = {k: v for k, v in state.query.items() if k not in _NO_SETTINGS}
    if not state.opened or "run" not in state.query or set(own) - _WHOSE:
        return
    try:
        run = run_data.read(state.query["run"])
    except RunError:
        return  # ``shown`` says so
    if run.kind != kind:
        return
    query = form_query.of(run, _case(run, state.query.get("case")))
    if any(query.get(name) != value for name, value in own.items()):
        return
    names = {*able(run), *query.get("own", "").split()}
    query["impl"] = ",".join(i for i in query.get("impl", "").split(",") if i in names)
    state.query |= {k: v for k, v in query.items() if v}


def _case(run: Run, name: str | None) -> Mapping | None:
    """The case of a run that a link names."""
    rows = tables.cases(run_data.records(run.id)).get(name) if name else None
    return rows[0].case if rows else None


def earlier(
    state: url.State, run: Run, spec: Mapping | None, names: Names, asked: Mapping | None = None
) -> bool:
    """Whether the run on show is not what the form asks for: it has other settings, a box of the form shows
    what cannot be read, or the run stands in for one that was cancelled before any result. A recorded one
    says itself where it is from. Arguments as for ``notice``."""
    if run.recorded or run.live:
        return False
    stands_in = st.session_state.get(f"{state.page}/run_id") not in (None, run.id)
    return stands_in or bool(state.refused) or differs(run, asked or spec, names) is not None


def notice(
    state: url.State, run: Run, spec: Mapping | None, names: Names, asked: Mapping | None = None
) -> None:
    """One line where the run on show is not the result for the current settings, with the buttons that make
    them agree: measure these, or take those of the run. ``asked``: the form's settings where ``spec`` is what
    can be measured of them here, or None."""
    text = differs(run, asked or spec, names)
    if text is None:
        return
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.info(text)
        st.button(
            "Measure this",
            key=f"differs/measure/{run.id}",
            on_click=_press,
            args=(state.page,),
            help="Run the comparison with the settings of the form",
            disabled=bool(state.unconfirmed) or spec is None,
        )
        if st.button(
            "Use its settings",
            key=f"differs/use/{run.id}",
            help="Fill the form with the settings of this run",
        ):
            st.switch_page(f"pages/{state.page}.py", query_params={"run": run.id})


def differs(run: Run, spec: Mapping | None, names: Names) -> str | None:
    """Why the run on show is not the result for the current settings; None where it is. What a recorded run
    was measured with on its device is no difference, and neither are further cases."""
    if run.live or spec is None:
        return None
    wanted, had = _comparable(spec, names), _comparable(run.spec, names)
    if all(case in had["cases"] for case in wanted["cases"]):
        wanted["cases"] = had["cases"]
    changed = [key for key in names if wanted[key] != had[key] and not (run.recorded and key in _ELSEWHERE)]
    if not changed:
        return None
    settings = ", ".join(_changed(key, names[key], wanted[key], had[key]) for key in changed)
    return f"This result of {captions.when(run)} is for other settings than the form's: {settings}."


def _changed(key: str, name: str, wanted: Any, had: Any) -> str:
    """ "sequence 512 instead of 1,024", "implementations without flex", "shape"."""
    if key == "impls":
        less, more = (sorted(map(short, some)) for some in (wanted - had, had - wanted))
        parts = [f"without {', '.join(less)}"] * bool(less) + [f"with {', '.join(more)}"] * bool(more)
        return md(f"{name} {' and '.join(parts)}") if len(less) + len(more) <= _NAMED else name
    if key != "cases":
        return md(f"{name} {had or 'none'} instead of {wanted or 'none'}")
    if len(wanted) == len(had) == 1:
        one, other = (captions.told(cases[0]) for cases in (wanted, had))
        keys = [k for k in {**one, **other} if one.get(k) != other.get(k)]
        if 0 < len(keys) <= _NAMED:
            return md(", ".join(nearest.difference(k, one.get(k), other.get(k)) for k in keys))
    return name


def _running(run_id: str | None, spec: Mapping, names: Names) -> bool:
    """Whether just this is being measured already: a second click starts nothing."""
    if not run_id or not run_data.exists(run_id):
        return False
    run = run_data.read(run_id)
    return run.live and _comparable(run.spec, names) == _comparable(spec, names)


def _of_kind(state: url.State, run_id: str, kind: str, called: str) -> bool:
    """Whether the URL's run can be shown on this page; else one sentence says why not."""
    try:
        run = run_data.read(run_id)
    except RunError as error:
        state.problems.append(f"The run in the URL cannot be shown: {error}.")
        return False
    if run.kind != kind:
        state.problems.append(f"Run {run_id} is a {run.kind}, not {called}; open it on the Runs page.")
        return False
    return True


def _comparable(spec: Mapping, names: Names) -> dict[str, Any]:
    impls = {*(spec.get("impls") or ()), spec.get("baseline")} - {None}
    cases = [dict(nearest.written_out(c)) for c in spec.get("cases") or ()]
    return {key: spec.get(key) for key in names} | {"impls": impls, "cases": cases}
