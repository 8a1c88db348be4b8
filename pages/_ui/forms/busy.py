"""A busy machine: said before Run is pressed and over a result measured on one, with the offer to wait."""

from __future__ import annotations

import streamlit as st

from fusescope.core.machine import conditions, load
from fusescope.core.records import Record, Run
from fusescope.jobs import submit
from pages._ui.app import callbacks, device
from pages._ui.widgets.text import md

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


def banner(run: Run, records: list[Record]) -> None:
    """Over a result: that the machine was busy, with the button that waits and measures again."""
    text = conditions.banner(records)
    if not text:
        return
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.warning(md(text))
        if not run.recorded and run.kind in KINDS:
            st.button(
                "Wait for an idle machine and measure again",
                key=f"busy/again/{run.id}",
                on_click=callbacks.careful(_again),
                args=(run,),
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


def _again(run: Run) -> None:
    again = submit.submit(run.kind, dict(run.spec) | {"wait_idle_s": WAIT_S})
    st.session_state.setdefault("jobs/toasts", []).append(f"{again} waits for an idle machine.")
