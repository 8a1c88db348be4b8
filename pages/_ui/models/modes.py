"""Which ways to run a model are compared; those that cannot be had here are listed with the reason."""

from __future__ import annotations

import streamlit as st

from fusescope import models
from pages._ui.app import device, url

_USUAL = ("eager", "sdpa", "sdpa-graph", "fusescope", "fused")


def choose(state: url.State, name: str) -> list[str]:
    """The ways to compare; ValueError where none is left."""
    listed = models.ways(name, device.current())
    able = [w.name for w in listed if w.reason is None]
    unable = [w for w in listed if w.reason]
    usual = [w for w in able if w in _USUAL]
    key = state.seed("impl", list(usual), lambda text: _known(text, able), name)
    st.session_state[key] = [w for w in st.session_state[key] if w in able]
    help_text = "\n\n".join(f"**{w.name}**: {w.idea}" for w in listed if w.reason is None)
    chosen = st.multiselect("ways to run it", able, key=key, help=help_text)
    if unable:
        with st.popover(f"{len(unable)} not here", type="tertiary"):
            for w in unable:
                st.markdown(f"**{w.name}**: {w.reason}. _{w.idea}_")
    state.keep("impl", ",".join(chosen), ",".join(usual))
    if not chosen:
        raise ValueError("choose at least one way to run the model")
    return chosen


def baseline(state: url.State, name: str, chosen: list[str]) -> str:
    """What every speed-up is over: one of the chosen; eager where it is among them."""
    options = chosen or ["eager"]
    key = state.seed("baseline", "eager", scope=name)
    if st.session_state[key] not in options:
        st.session_state[key] = "eager" if "eager" in options else options[0]
    picked = st.selectbox("baseline", options, key=key, help="What every speed-up is over")
    state.keep("baseline", picked, "eager")
    return picked


def _known(text: str, offered: list[str]) -> list[str]:
    names = [n for n in text.split(",") if n]
    unknown = [n for n in names if n not in offered]
    if unknown:
        raise ValueError(
            f"{', '.join(unknown)} cannot be had on {device.current()}; there is {', '.join(offered)}"
        )
    return names
