"""Which implementations (or execution modes) are compared; those that cannot run here are listed with the
reason."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from fusescope.charts import glossary
from fusescope.charts.colours import short
from fusescope.ops.base import Implementation
from pages._ui.app import device, url
from pages._ui.forms import own as own_kernels
from pages._ui.widgets import told
from pages._ui.widgets.text import md


def choose(
    state: url.State,
    scope: str,
    listed: Sequence[Implementation],
    label: str = "implementations",
    usual: Sequence[str] | None = None,
    own: bool = False,
) -> list[str]:
    """The names to compare; ``usual`` are chosen at first. ``own``: the user's own files, too; the first ones
    are compared with eager alone.

    ValueError where none is left or one of the user's own does not exist."""
    able = [i.name for i in listed if i.reason is None]
    usual = [n for n in able if usual is None or n in usual]
    box = st.container()
    files, mistake = own_kernels.choose(state, scope) if own else ([], "")
    unavailable(listed)
    offered = able + [f for f in files if f not in able]
    key = state.seed("impl", list(usual), lambda text: _known(text, offered), scope)
    seen = f"{state.page}/own_seen/{scope}"
    chosen = [n for n in st.session_state[key] if n in offered]
    added = [f for f in files if f not in st.session_state.get(seen, []) and f not in chosen]
    if added and chosen == usual:  # with eager alone: nobody asked for all others, some of which compile
        chosen = [n for n in chosen if n == "eager"]
    told.tell(key, chosen + added)
    st.session_state[seen] = files
    ideas = {i.name: i.idea for i in listed}
    help_text = "\n\n".join(f"**{n}**: {ideas.get(n, 'yours')}" for n in offered)
    chosen = box.multiselect(label, offered, key=key, format_func=short, help=help_text)
    state.keep("impl", ",".join(chosen), ",".join(usual))
    if mistake:
        raise ValueError(mistake)
    if not chosen:
        raise ValueError(f"choose at least one of the {label}")
    return chosen


def baseline(state: url.State, scope: str, chosen: Sequence[str]) -> str:
    """What every speed-up is over: one of the chosen; PyTorch's eager form where it is among them."""
    options = list(chosen) or ["eager"]
    key = state.seed("baseline", "eager", scope=scope)
    if st.session_state[key] not in options:
        st.session_state[key] = "eager" if "eager" in options else options[0]
    picked = st.selectbox("baseline", options, key=key, format_func=short, help=glossary.of("baseline"))
    state.keep("baseline", picked, "eager")
    return picked


def unavailable(listed: Sequence[Implementation]) -> None:
    """Those that cannot run here, with the reason, behind a button."""
    unable = [i for i in listed if i.reason]
    if unable:
        with st.popover(f"{len(unable)} unavailable on this device", type="tertiary"):
            st.markdown("\n\n".join(f"**{md(i.name)}**: {md(i.reason)}. _{md(i.idea)}_" for i in unable))


def _known(text: str, offered: Sequence[str]) -> list[str]:
    names = [n for n in text.split(",") if n]
    unknown = [n for n in names if n not in offered]
    if unknown:
        raise ValueError(
            f"{', '.join(unknown)} not available on {device.current()}; choose from {', '.join(offered)}"
        )
    return names
