"""How wide the browser's window is. The page that opens says so in a cookie (``guard.opening``), before it
connects; a window that is resized is known by its new width from the next connection on."""

from __future__ import annotations

import streamlit as st

COOKIE = "fusescope_width"
_NARROW = 640  # pixels up to which a page is one column, as in ``widgets.style``
_USUAL = 1280
_MARGIN, _SIDEBAR, _FORM = 51, 212, 324  # pixels
_RESULT = 0.68  # of a page with a form, the share of its result
_CHARACTER = 6.1  # pixels of a subtitle's


def width() -> int:
    """Pixels; a usual width where the browser does not say."""
    said = dict(st.context.cookies).get(COOKIE, "")
    return min(10_000, max(320, int(said))) if said.isascii() and said.isdigit() else _USUAL


def narrow() -> bool:
    """Whether the page is one column, as on a phone."""
    return width() <= _NARROW


def characters(share: float = 1.0, pixels: int = 10_000) -> int:
    """How many characters of a subtitle fit above a chart that has this share of a result's column, and at
    most so many pixels."""
    page = width() - _SIDEBAR - _MARGIN
    room = width() - 32 if narrow() else share * min(_RESULT * page, page - _FORM)
    return int(min(room, pixels) / _CHARACTER)
