"""What a page shows before there is anything of one's own: one sentence, one button, and a recording to look
at meanwhile."""

from __future__ import annotations

import streamlit as st

from fusescope import ops
from fusescope.core.records import BenchSpec
from fusescope.jobs import submit
from pages._ui.answer import answer, runs
from pages._ui.app import callbacks, url


def kernels(state: url.State, op: str, spec: BenchSpec | None) -> None:
    """Kernels without a run of this operator."""
    st.markdown(
        f"**{ops.load(op).TITLE}** was not measured here yet. Press Run, and the answer stands here in a moment."
    )
    st.button(
        "Run a first comparison",
        type="primary",
        disabled=spec is None,
        key="empty/run",
        on_click=callbacks.careful(_first),
        args=(spec,),
    )
    _recording(state, op, spec)


def _recording(state: url.State, op: str, spec: BenchSpec | None) -> None:
    """The recorded answer nearest to what is chosen, badged with its device, as if it were the answer."""
    near = runs.nearest(op, spec.cases[0]) if spec else None
    shown = near or runs.nearest(op, {})
    if shown is None:
        st.caption(f"No recorded run of {ops.load(op).TITLE} ships with this checkout.")
        return
    st.caption(
        f"Meanwhile, {'the nearest to these settings' if near else 'one'} that was recorded on other hardware:"
    )
    run_id, case = shown
    answer.draw(state, run_id, **({"first": case} if near and len(spec.cases) == 1 else {}))


def _first(spec: BenchSpec) -> None:
    st.session_state["kernels/run_id"] = submit.submit("bench", spec.to_json())
