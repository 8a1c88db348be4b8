"""What a click does: a refusal becomes a sentence at the top of the page, never a stack trace."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable

import streamlit as st

from fusescope.core.errors import BuildError, RunError
from pages._ui.widgets.text import sentence

REFUSALS = (ValueError, TypeError, RunError, BuildError, OSError)
"""What a user's mistake, or the machine's state, raises; anything else is a defect of ours."""
_KEY = "act/problems"
_LOG = logging.getLogger("fusescope")


def careful(callback: Callable[..., None]) -> Callable[..., None]:
    """A widget's callback whose refusal is shown by the frame on the drawing that follows."""

    @functools.wraps(callback)
    def wrapped(*args, **kwargs) -> None:
        try:
            callback(*args, **kwargs)
        except REFUSALS as error:
            _LOG.warning("%s: %s", callback.__qualname__, error, exc_info=True)
            st.session_state.setdefault(_KEY, []).append(sentence(error))

    return wrapped


def refused() -> list[str]:
    """The sentences since the last drawing, once."""
    return st.session_state.pop(_KEY, [])
