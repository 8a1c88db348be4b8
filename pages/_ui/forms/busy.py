"""A busy machine: said before Run is pressed and over a result measured on one, with the offer to wait."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from fusescope.core.machine import conditions, load
from fusescope.core.records import Record, Run
from fusescope.jobs import submit
from pages._ui.app import device, run_data, trust
from pages._ui.widgets.text import md, run_name

WAIT_S = 300.0
"""How long a job waits for idle CPUs if requested; then it measures anyway, and says so."""
KINDS = ("bench", "model")
_WAIT = "busy/wait"


def offer() -> None:
    """Whether others use the CPUs now, and the choice to wait for them; nothing for a GPU, or while a job of
    ours is what keeps them busy."""
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
    text = None if submit.queue() else load.sentence(now, len(_load().cpus))
    waits = bool(st.session_state.get(_WAIT))
    if text:
        st.warning(f"{md(text[0].upper() + text[1:])}: times measured now will be noisy.")
    if text or waits:
        st.session_state[_WAIT] = st.checkbox(
            f"Wait up to {WAIT_S / 60:.0f} min for an idle machine", value=waits, key="busy/box"
        )


@st.cache_resource
def _load() -> load.Load:
    return load.Load()


def _again(kind: str, spec: dict, show: Callable[[str], None]) -> None:
    again = submit.submit(kind, spec)
    show(again)
    text = f"**{md(run_name(run_data.read(again)))}** waits for an idle machine."
    st.session_state.setdefault("jobs/toasts", []).append(text)
