"""The Profiler page: a profile to show, a file to import, or something to profile now."""

from __future__ import annotations

import streamlit as st

from fusescope.charts import captions
from fusescope.core.errors import RunError
from fusescope.core.machine.conditions import NO_DEVICE
from fusescope.core.records import Run
from fusescope.jobs import submit
from fusescope.store import library
from pages._ui.answer import answer
from pages._ui.app import callbacks, device, jobs, run_data, url
from pages._ui.forms import fields
from pages._ui.profiler import collecting, data, importing
from pages._ui.profiler.views import choice
from pages._ui.widgets import told
from pages._ui.widgets.text import md, run_name, sentence

LOOK, IMPORT, NOW = data.LOOK, "Import a file", "Profile something now"
MODES = {LOOK: "", IMPORT: "import", NOW: "now"}
_TOOLS = {"trace": "torch.profiler", "ncu": "Nsight Compute", "nsys": "Nsight Systems"}
_FAILED = "profiler/failed"
_CASE = {"batch": 1, "seq": 512, "heads": 12, "head_dim": 64}


def mode(state: url.State) -> str:
    """Which of the three is chosen."""
    words = {v: k for k, v in MODES.items()}
    key = state.seed("do", LOOK, lambda text: words[url.one_of(list(words))(text)])
    chosen = st.segmented_control("do", list(MODES), key=key, label_visibility="collapsed", required=True)
    state.keep("do", MODES[chosen])
    return chosen


def draw(state: url.State, what: str) -> None:
    """The chosen mode."""
    if what == IMPORT:
        importing.draw(state)
    elif what == NOW:
        collecting.draw(state)
    else:
        _look(state)


def _look(state: url.State) -> None:
    offered = data.offered()
    wanted = _wanted(state)
    own = [i for i in offered if not _run(i).recorded]
    if not own and wanted is None:
        _nothing()
    options = offered if wanted in (None, *offered) else [wanted, *offered]
    failed = _failed_import()
    if not options:
        st.caption("No recorded profile ships with this checkout.")
        return
    if failed:
        st.caption("Below is another profile, not of this file:")
    key = "profiler/run"
    if st.session_state.get(key) not in options:
        st.session_state[key] = wanted or options[0]
    names = {i: _line(_run(i)) for i in options}
    chosen = st.session_state[key]
    # a widget of its own: a browser may still send the line that a running job has changed since
    widget = f"{key}/widget"
    told.tell(widget, chosen)
    st.selectbox(
        "profile",
        options,
        key=widget,
        format_func=names.get,
        label_visibility="collapsed",
        filter_mode=fields.IN_LINES,
        on_change=_choose,
        args=(widget, options),
    )
    state.keep("run", chosen)
    run = _run(chosen)
    if run.live:
        jobs.follow(chosen, lambda run: st.markdown(f"**{md(run_name(run))}**"), cancel=True)
        return
    answer.heading(run)
    choice.draw(state, data.load(chosen))


def _choose(widget: str, options: list[str]) -> None:
    st.session_state.pop(_FAILED, None)
    if st.session_state[widget] in options:
        st.session_state["profiler/run"] = st.session_state[widget]


def _wanted(state: url.State) -> str | None:
    """The run that the URL or the last choice names, if it is there; else one sentence."""
    key = state.seed("run", None)
    run_id = st.session_state[key]
    if not run_id:
        return None
    try:
        found = library.find(run_id)
    except RunError as error:
        state.problems.append(f"{sentence(error)}.")
        st.session_state[key] = None
        return None
    run = _run(found.name)
    if run.live or run.kind != "import" or data.has_profile(found):
        return found.name
    st.session_state[key] = None  # a failed import is not selected
    st.session_state[_FAILED] = run.id
    return None


def _failed_import() -> bool:
    """Whether what was to be opened last is an import that failed, which is said until another profile is
    chosen: what is shown is not of that file."""
    try:
        run = _run(st.session_state[_FAILED])
    except (KeyError, RunError):
        return False
    st.error(md(f"{run_name(run)} was not imported: {run.reason or run.status}."))
    return True


def _run(run_id: str) -> Run:
    return run_data.read(run_id)


def _line(run: Run) -> str:
    """A run as one line of the picker, in plain text: of a recorded one first whether it is a model or a
    kernel. Lines must differ, so that each has the end of its id."""
    where = f"recorded on {run.device_name}" if run.recorded else run.device_name
    where = "" if where == NO_DEVICE else where  # while it starts, or reads its file
    words = [run_name(run), _TOOLS.get(run.kind, ""), where, captions.when(run), run.id.rpartition("-")[2]]
    if run.recorded:
        words.insert(0, _group(run))
    return " · ".join(p for p in words if p)


def _group(run: Run) -> str:
    if run.kind == "parallel":
        return "Many ranks"
    return "Model" if data.of_model(run) else "Kernel"


def _nothing() -> None:
    """The empty state: one sentence, one button, and below it a recording."""
    where = device.facts(device.current()).get("device_name") or device.current()
    st.markdown(
        f"No profile on this machine yet. Trace our attention on {md(str(where))} to see what limits it."
    )
    st.button("Profile attention", type="primary", key="profiler/first", on_click=callbacks.careful(_first))
    if data.offered():
        st.caption("A recorded profile:")


def _first() -> None:
    spec = {"op": "attention", "impl": "auto", "case": _CASE, "device": device.current()}
    spec |= {"dtype": "float16" if device.is_gpu() else "float32", "memory": device.is_gpu()}
    data.opened(submit.submit("trace", spec, title="Attention, first profile"))
