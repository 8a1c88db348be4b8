"""Drawing a part of a page again without the rest of it; and the whole page from a part that renews itself,
without cutting a page that is being drawn."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextvars import ContextVar

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from pages._ui.app import callbacks, url
from pages._ui.widgets import style
from pages._ui.widgets.text import md, sentence

_LOG = logging.getLogger("fusescope")
_THEME = "theme of the page"  # its key in the session state
_NEXT = "whole page next"
_part_is_drawn: ContextVar[bool] = ContextVar("part is drawn", default=False)


def part(state: url.State, draw: Callable[[url.State], None]) -> None:
    """draw(state); when a widget in it changes, it alone is drawn again, with a state that has what the rest
    of the page keeps: server and browser then do a third of the work of the whole page.

    For what changes nothing outside itself but the URL, or says so with ``whole_page_next``; not for the
    Profiler's views: one opens another run.
    """
    st.session_state.pop(_NEXT, None)
    before = set(state.out)
    own: set[str] | None = None  # names that it keeps, once it was drawn with the page
    refusal: Exception | None = None  # Streamlit would show one that leaves a fragment, in its own words

    @st.fragment
    def fragment() -> None:
        nonlocal own, refusal
        if own is None:
            try:
                draw(state)
            except callbacks.REFUSALS as error:
                refusal = error
            own = set(state.out) - before
            return
        if st.session_state.pop(_NEXT, False):
            st.rerun(scope="app")
        now = url.State(state.page)
        now.scopes = state.scopes
        now.out = {name: value for name, value in state.out.items() if name not in own}
        rest = set(now.out)
        for text in callbacks.refused():
            st.error(md(text))
        token = _part_is_drawn.set(True)
        try:
            draw(now)
        except callbacks.REFUSALS as error:
            _LOG.warning("part of page %s: %s", state.page, error, exc_info=True)
            st.error(md(sentence(error)))
            now.out = state.out | now.out
        finally:
            _part_is_drawn.reset(token)
        for problem in now.problems:
            st.warning(md(problem))
        now.commit()
        state.out, own = now.out, set(now.out) - rest

    fragment()
    if refusal:
        raise refusal  # for the frame


def whole_page_next() -> None:
    """From a callback in a part that changes what stands outside of it: the page is drawn in its place."""
    st.session_state[_NEXT] = True


def whole_page() -> None:
    """Draw the page once more, when called from a fragment's own renewal.

    While the page, or a part with the fragment, is drawn it does nothing: the widgets below would not be
    drawn and would lose their values; the fragment's next renewal comes soon enough.
    """
    context = get_script_run_ctx(suppress_warning=True)
    if context is not None and context.fragment_ids_this_run and not _part_is_drawn.get():
        st.rerun(scope="app")


def in_theme() -> None:
    """Draw the whole page once more when the visitor's theme is not the one that it was drawn in: charts have
    its colours in them. For a fragment that renews itself: a browser says its theme each time."""
    theme, before = style.theme(), st.session_state.get(_THEME)
    st.session_state[_THEME] = theme
    if before not in (None, theme):
        whole_page()
