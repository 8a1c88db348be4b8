"""What was made for one drawing, kept for the next: a slider that moves elsewhere on the page costs no chart
twice."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeVar

import streamlit as st

Made = TypeVar("Made")


def once(key: tuple[Hashable, ...], make: Callable[[], Made]) -> Made:
    """What ``make`` returns, made once for each key (shared by all visitors, so it must not be changed). The
    key names what is made and everything that it depends on, the theme included."""
    return _kept(key, make)


@st.cache_resource(max_entries=128, show_spinner=False)
def _kept(key: tuple[Hashable, ...], _make: Callable[[], Made]) -> Made:
    return _make()
