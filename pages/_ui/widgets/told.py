"""The value of a widget that the page decides."""

from __future__ import annotations

from typing import Any

import streamlit as st


def tell(key: str, value: Any) -> None:
    """Before a widget is drawn: set its value where that is another one. A value that is set is sent, and a
    browser that is sent one drops what its user has typed or moved since."""
    if key not in st.session_state or st.session_state[key] != value:
        st.session_state[key] = value
