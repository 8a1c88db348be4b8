"""What a comparison claims, and for what it holds: the band of "same", and the number of processes."""

from __future__ import annotations

from typing import Any

import streamlit as st

from pages._ui.app import url
from pages._ui.forms import fields

_BANDS = (1.0, 0.2, 0.5, 2.0, 5.0)  # per cent; the first is the default
_PROCESSES = (1, 3, 5, 10)


def draw(state: url.State) -> dict[str, Any]:
    """``same_within`` and ``processes`` of a BenchSpec."""
    left, right = st.columns(2, gap="small", wrap=False)
    with left:
        band = fields.pick(
            state,
            "within",
            "same within",
            _BANDS,
            format_func="{:g} %".format,
            help="Speed-ups whose whole interval is within this of 1 count as the same.",
        )
    with right:
        processes = fields.pick(
            state,
            "processes",
            "processes",
            _PROCESSES,
            help="Fresh processes, one after the other. The interval of one holds within that process; with "
            "three or more it holds for a further process too.",
        )
    return {"same_within": band / 100, "processes": processes}
