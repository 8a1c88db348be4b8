"""A page with a form at the left and its result at the right; on a phone the result alone, under a line that
opens the form."""

from __future__ import annotations

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

_NARROW = '<details class="fs-settings"><summary>{}</summary></details>'
"""Shown on narrow screens only (``widgets.style``): while it is closed the form is hidden, so that the answer
is not a scroll of 1,700 pixels away."""


def form_and_result(label: str = "Settings and Run") -> tuple[DeltaGenerator, DeltaGenerator]:
    """(the container of the form, that of the result); ``label``: of the line that opens the form."""
    st.html(_NARROW.format(label))
    left, right = st.columns([1, 2.35], gap="medium", wrap=False)
    return left.container(border=True, key="form"), right.container(key="result")
