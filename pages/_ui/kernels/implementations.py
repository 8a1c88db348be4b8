"""Which implementations are compared: ours, peers, a user's own file; those that cannot run here are listed
with the reason."""

from __future__ import annotations

import streamlit as st

from fusescope import ops
from fusescope.charts.colours import short
from pages._ui.app import device, url


def choose(state: url.State, op: str) -> list[str]:
    """The implementations to compare; ValueError where none is left or one of the user's own does not
    exist."""
    arch = device.facts(device.current()).get("arch")
    listed = ops.implementations(op, device.current(), arch)
    able = [i.name for i in listed if i.reason is None]
    box = st.container()
    with st.container(horizontal=True, gap="small"):
        own, mistake = _own(state)
        unable = [i for i in listed if i.reason]
        if unable:
            with st.popover(f"{len(unable)} not on this device", type="tertiary"):
                for i in unable:
                    st.markdown(f"**{i.name}**: {i.reason}. _{i.idea}_")
    offered = able + [o for o in own if o not in able]
    key = state.seed("impl", list(able), lambda text: _known(text, offered), op)
    st.session_state[key] = [n for n in st.session_state[key] if n in offered]
    seen = f"kernels/own_seen/{op}"
    fresh = [o for o in own if o not in st.session_state.get(seen, []) and o not in st.session_state[key]]
    st.session_state[key] = (
        st.session_state[key] + fresh
    )  # what somebody has just typed is meant to be compared
    st.session_state[seen] = own
    ideas = {i.name: i.idea for i in listed}
    with box:
        help_text = "\n\n".join(f"**{n}**: {ideas.get(n, 'yours')}" for n in offered)
        chosen = st.multiselect("implementations", offered, key=key, format_func=short, help=help_text)
    state.keep("impl", ",".join(chosen), ",".join(able))
    if mistake:
        raise ValueError(mistake)
    if not chosen:
        raise ValueError("choose at least one implementation")
    return chosen


def baseline(state: url.State, op: str, chosen: list[str]) -> str:
    """What every speed-up is over: one of the chosen; PyTorch's eager form where it is among them."""
    options = chosen or ["eager"]
    key = state.seed("baseline", "eager", scope=op)
    if st.session_state[key] not in options:
        st.session_state[key] = "eager" if "eager" in options else options[0]
    picked = st.selectbox("baseline", options, key=key, format_func=short, help="What every speed-up is over")
    state.keep("baseline", picked, "eager")
    return picked


def _own(state: url.State) -> tuple[list[str], str]:
    """The user's own callables that exist, and what is wrong with the others."""
    key = state.seed("own", "")
    typed = len(st.session_state[key].split())
    with st.popover(f"Your own ({typed})" if typed else "Your own", type="tertiary"):
        text = st.text_input(
            "file.py:function",
            key=key,
            placeholder="path/to/file.py:function",
            help="Any callable with the operator's Python signature: Triton, CuTe DSL, an extension. Several: separated by spaces.",
        )
    state.keep("own", text.strip(), "")
    found, mistake = [], ""
    for word in text.split():
        try:
            if not ops.is_user(word):
                raise ValueError(
                    f"an implementation of your own is written path/to/file.py:function, not {word!r}"
                )
            ops.describe("", word)
            found.append(word)
        except (ValueError, OSError) as error:
            mistake = mistake or str(error)
    return found, mistake


def _known(text: str, offered: list[str]) -> list[str]:
    names = [n for n in text.split(",") if n]
    unknown = [n for n in names if n not in offered]
    if unknown:
        raise ValueError(
            f"{', '.join(unknown)} cannot run on {device.current()}; it has {', '.join(offered)}"
        )
    return names
