"""What a page shows before there is anything of one's own: one sentence, one button, and a recording to look at meanwhile."""

from __future__ import annotations

import streamlit as st

from backend import ops
from backend.core.records import BenchSpec
from backend.jobs import submit
from pages._ui import act, answer, runs, url


def kernels(state: url.State, op: str, spec: BenchSpec | None) -> None:
    """Kernels without a run of this operator."""
    st.markdown(f"**{ops.load(op).TITLE}** was not measured here yet. Press Run, and the answer stands here in a moment.")
    st.button(
        "Run a first comparison",
        type="primary",
        disabled=spec is None,
        key="empty/run",
        on_click=act.careful(_first),
        args=(spec,),
    )
    recording(state, op)


def recording(state: url.State, op: str | None = None) -> None:
    """A recorded run, badged with its device, as if it were the answer."""
    shown = runs.newest("bench", op, recorded=True) or runs.newest("bench", recorded=True)
    if shown is None:
        st.caption("No recorded run ships with this checkout.")
        return
    st.caption("Meanwhile, one that was recorded on other hardware:")
    answer.draw(state, shown.id)


def _first(spec: BenchSpec) -> None:
    st.session_state["kernels/run_id"] = submit.submit("bench", spec.to_json())
