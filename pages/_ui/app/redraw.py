"""Drawing the whole page again from a part of it that renews itself, without cutting a page that is being
drawn."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from pages._ui.widgets import style

_THEME = "theme of the page"  # its key in the session state


def whole_page() -> None:
    """Draw the page once more, when called from a fragment's own renewal.

    During the first, full drawing it does nothing: the widgets below would not be drawn and would lose their
    values; the fragment's next renewal comes soon enough.
    """
    if alone():
        st.rerun(scope="app")


def alone() -> bool:
    """Whether only a fragment is being drawn."""
    context = get_script_run_ctx(suppress_warning=True)
    return context is not None and bool(context.fragment_ids_this_run)


def settings() -> dict[str, Any]:
    """What the session holds for its widgets, URLs apart: for ``changed``, later."""
    held = {str(k): v for k, v in st.session_state.items() if not str(k).startswith("url/")}
    return {k: copy.copy(v) if isinstance(v, (list, dict, set)) else v for k, v in held.items()}


def changed(before: Mapping[str, Any], own: tuple[str, ...]) -> list[Any]:
    """The settings that a widget or a callback has changed since, other than those whose keys begin with one
    of ``own``. What is gone is that of a widget which is not drawn any more."""
    now = {k: v for k, v in settings().items() if not k.startswith(own)}
    return [v for k, v in now.items() if k not in before or not _same(v, before[k])]


def _same(one: Any, other: Any) -> bool:
    try:
        return one is other or bool(one == other)
    except (ValueError, TypeError):  # tables and arrays
        return False


def in_theme() -> None:
    """Draw the whole page once more when the visitor's theme is not the one that it was drawn in: charts have
    its colours in them. For a fragment that renews itself: a browser says its theme each time."""
    theme, before = style.theme(), st.session_state.get(_THEME)
    st.session_state[_THEME] = theme
    if before not in (None, theme):
        whole_page()
