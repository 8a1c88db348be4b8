"""Drawing the whole page again from a part of it that renews itself, without cutting a page that is being
drawn."""

from __future__ import annotations

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from pages._ui.widgets import style

_THEME = "theme of the page"  # its key in the session state


def whole_page() -> None:
    """Draw the page once more, when called from a fragment's own renewal.

    During the first, full drawing it does nothing: the widgets below would not be drawn and would lose their
    values; the fragment's next renewal comes soon enough.
    """
    context = get_script_run_ctx(suppress_warning=True)
    if context is not None and context.fragment_ids_this_run:
        st.rerun(scope="app")


def in_theme() -> None:
    """Draw the whole page once more when the visitor's theme is not the one that it was drawn in: charts have
    its colours in them. For a fragment that renews itself: a browser says its theme each time."""
    theme, before = style.theme(), st.session_state.get(_THEME)
    st.session_state[_THEME] = theme
    if before not in (None, theme):
        whole_page()
