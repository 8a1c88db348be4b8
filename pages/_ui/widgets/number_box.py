"""A box for a number. It is a text field: a browser's own number box drops the letters that it cannot read,
and hands over the rest (12 of 12abc) as though it had been meant."""

from __future__ import annotations

from typing import Any

import streamlit as st

from fusescope.core.schema import Parameter, written
from pages._ui.widgets import told

Number = int | float | None


def draw(
    label: str,
    key: str,
    parameter: Parameter,
    box: Any = st,
    fresh: bool = False,
    place: str = "",
    **settings,
) -> tuple[Number, str]:
    """(the number that the session has under ``key``, what is wrong with the text in the box or "").

    A size may be written as 16k, 2**14 or 1e6, and is shown as digits once it is read. While the box shows
    what cannot be read the session keeps the number before, from which a page may draw but nothing may run.
    A box whose parameter may be absent may be empty: None. fresh: show the session's number whatever was
    typed. place: the box's own key, where one box shows several numbers in turn.
    """
    session, place = st.session_state, place or key
    typed, shown = f"{place}/typed", f"{place}/shown"
    number = session[key]
    if fresh or typed not in session or session.get(shown) != (key, number):
        told.tell(typed, _written(number))
    session[shown] = key, number
    text = box.text_input(label, key=typed, on_change=_take, args=(key, place, parameter), **settings)
    try:
        _read(text, parameter)
    except ValueError as error:
        return number, f"{error} ({written.EXAMPLES} are accepted)" if _words(text) else str(error)
    return number, ""


def _read(text: str, parameter: Parameter) -> Number:
    if not text.strip() and parameter.default is None:
        return None
    return parameter.read(text)


def _take(key: str, place: str, parameter: Parameter) -> None:
    """Keep what was typed, where it is a number of this kind (a callback)."""
    session = st.session_state
    try:
        number = _read(session[f"{place}/typed"], parameter)
    except ValueError:
        return
    session[key], session[f"{place}/shown"] = number, (key, number)
    told.tell(f"{place}/typed", _written(number))


def _written(number: Number) -> str:
    if number is None:
        return ""
    return f"{number:.12g}" if isinstance(number, float) else str(number)


def _words(text: str) -> bool:
    """Whether a text is no number at all, rather than one out of bounds."""
    try:
        written.real(text.strip())
    except (ValueError, OverflowError):
        return True
    return False
