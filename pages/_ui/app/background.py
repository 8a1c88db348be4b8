"""Background tasks of seconds, in a thread: the page stays responsive and shows their progress."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Any

import streamlit as st

from pages._ui.app import redraw
from pages._ui.widgets.text import md, sentence

Report = Callable[[int, int], None]
_AT_ONCE_S = 0.3  # what is done by then needs no progress bar


class Task:
    """``make(report)`` under way; ``result`` when done, or ``error``. The thread draws nothing."""

    def __init__(self, make: Callable[[Report], Any]):
        self.result: Any = None
        self.error: Exception | None = None
        self.share = 0.0
        self._thread = threading.Thread(target=self._run, args=(make,), daemon=True, name="task")
        self._thread.start()

    def _run(self, make: Callable[[Report], Any]) -> None:
        try:
            self.result = make(self._report)
        except Exception as error:  # shown on the page by ``result``
            self.error = error

    def _report(self, done: int, total: int) -> None:
        self.share = min(1.0, done / max(1, total))

    def done(self, within_s: float = 0.0) -> bool:
        self._thread.join(within_s)
        return not self._thread.is_alive()


def result(key: tuple[Hashable, ...], text: str, make: Callable[[Report], Any]) -> Any:
    """What ``make(report)`` gives, made once for each key (shared by all visitors); None, with a progress bar
    that ends in a drawing of the page, while it is being made. What it refuses is one sentence; the next
    asking tries again."""
    work = _started(key, make)
    if not work.done(_AT_ONCE_S):
        _waiting(work, text)
        return None
    if work.error is not None:
        _started.clear(key, make)
        if not isinstance(work.error, ValueError | TypeError | OSError | ModuleNotFoundError):
            raise work.error
        st.error(md(sentence(work.error)))
    return work.result


@st.fragment(run_every=0.5)
def _waiting(work: Task, text: str) -> None:
    st.progress(work.share, text=text)
    if work.done():
        redraw.whole_page()


@st.cache_resource(max_entries=32, show_spinner=False)
def _started(key: tuple[Hashable, ...], _make: Callable[[Report], Any]) -> Task:
    return Task(_make)
