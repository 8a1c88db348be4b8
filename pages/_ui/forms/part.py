"""A row of views of which one is drawn under it; another choice draws these alone, not the page."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import streamlit as st

from pages._ui.app import callbacks, frame, redraw, url
from pages._ui.forms import fields
from pages._ui.widgets.text import md, sentence

_OWN = ("chart/", "csv/", "says/", "views/")
"""Beginnings of keys of widgets that nothing but the view they are in reads."""


def draw(
    state: url.State,
    name: str,
    options: Iterable,
    body: Callable[[Any], None],
    default: Any = None,
    own: tuple[str, ...] = (),
) -> None:
    """The row of buttons whose choice the URL has under ``name``, and ``body(choice)`` under it.

    A choice changes nothing outside, so only this part is drawn again, in half the time of the page; so it is
    where a setting changes whose key begins with one of ``own``. Whatever else a click in it changes may be
    read elsewhere: the page is drawn after it. What ``body`` uses from outside is of the page's last drawing.
    """
    options, refused = list(options), []

    def part() -> None:
        with state.part(name):
            body(fields.view(state, name, options, default))

    _part(state, part, (state.key(name), *_OWN, *own), refused)
    if refused:  # not raised inside, where Streamlit would show its trace
        raise refused[0]


@st.fragment
def _part(state: url.State, part: Callable[[], None], own: tuple[str, ...], refused: list[Exception]) -> None:
    alone = redraw.alone()
    beyond = redraw.changed(state.settled, own) if alone else []
    if beyond and not any(value is True for value in beyond):  # True: a button, which is pressed for one run
        st.rerun(scope="app")
    if alone:
        state.renew()
    try:
        part()
    except callbacks.REFUSALS as error:
        refused.append(error)
        if alone:
            st.error(md(sentence(error)))
    if not alone:
        return
    for problem in state.problems:
        st.warning(md(problem))
    if beyond:
        st.rerun(scope="app")
    frame.settle(state)
