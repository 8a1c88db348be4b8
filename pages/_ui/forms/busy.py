"""A busy machine: said before Run is pressed and over a result measured on one, with the offer to wait."""

from __future__ import annotations

from collections.abc import Callable
from html import escape as quoted

import streamlit as st

from fusescope.core.machine import conditions, load
from fusescope.core.records import Record, Run
from fusescope.jobs import submit
from pages._ui.app import device, run_data, trust
from pages._ui.widgets.text import escape, md, run_name

WAIT_S = 300.0
"""How long a job waits for idle CPUs if requested; then it measures anyway, and says so."""
KINDS = ("bench", "model")
_WAIT = "busy/wait"


def offer() -> None:
    """The choice to wait for idle CPUs, and whether others use them now; nothing for a GPU. It renews itself
    and keeps its height: it never moves what is below it."""
    if not device.is_gpu():
        _now()


def chosen(kind: str) -> dict[str, float]:
    """What the choice adds to the specification of a comparison."""
    return {"wait_idle_s": WAIT_S} if kind in KINDS and st.session_state.get(_WAIT) else {}


def banner(run: Run, records: list[Record], show: Callable[[str], None]) -> None:
    """Over a result: that the machine was busy, with the button that waits and measures again; ``show(id)``
    has the page follow the run that it starts."""
    text = conditions.banner(records)
    if not text:
        return
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.warning(md(text))
        if not run.recorded and run.kind in KINDS:
            spec = {k: v for k, v in run.spec.items() if k != "deadline_s"} | {"wait_idle_s": WAIT_S}
            trust.button(
                "Wait for an idle machine and measure again",
                f"busy/again/{run.id}",
                run,
                spec,
                _again,
                (run.kind, spec, show),
            )


@st.fragment(run_every=3.0)
def _now() -> None:
    now = _load().read()
    load.crowding()  # the next estimate looks back on this
    with st.container(gap="xxsmall"):
        st.session_state[_WAIT] = st.checkbox(
            f"Wait up to {WAIT_S / 60:.0f} min for an idle machine",
            value=bool(st.session_state.get(_WAIT)),
            key="busy/box",
        )
        if submit.queue():
            line, whole = "A job is running on this machine.", ""
        elif whole := load.sentence(now, len(_load().cpus)) or "":
            first = whole.partition(",")[0]
            line = f"⚠ {first[0].upper()}{first[1:]}: times would be noisy. {_advice()}"
        else:
            line = "The CPUs are idle now." if now else ""
        st.html(f"<div class='fs-small fs-muted fs-slot' title='{quoted(whole)}'>{escape(line)}</div>")


def _advice() -> str:
    return "Run will wait." if st.session_state[_WAIT] else "Tick the box to wait."


@st.cache_resource
def _load() -> load.Load:
    return load.Load()


def _again(kind: str, spec: dict, show: Callable[[str], None]) -> None:
    again = submit.submit(kind, spec)
    show(again)
    text = f"**{md(run_name(run_data.read(again)))}** takes no samples before the machine is idle."
    st.session_state.setdefault("jobs/toasts", []).append(text)
