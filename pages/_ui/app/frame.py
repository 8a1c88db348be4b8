"""The frame of every page: links, device and queue in the sidebar; title and question on top; errors as one
sentence."""

from __future__ import annotations

import ast
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import streamlit as st

from fusescope.core.paths import ROOT
from pages._ui.app import callbacks, device, jobs, url
from pages._ui.guard import entrance
from pages._ui.widgets import style
from pages._ui.widgets.text import md, sentence

_LOG = logging.getLogger("fusescope")


@cache
def pages() -> dict[str, str]:
    """Name → file of every page, home first: a new file in pages/ is in the frame without being listed."""
    files = sorted((ROOT / "pages").glob("[!_]*.py"), key=lambda f: (_order(f), f.stem))
    return {"app": "app.py"} | {f.stem: f"pages/{f.name}" for f in files}


def _order(file: Path) -> int:
    """The page's ORDER, read without running it; pages without one come last."""
    names = (n for n in ast.parse(file.read_text()).body if isinstance(n, ast.Assign))
    return next((n.value.value for n in names if getattr(n.targets[0], "id", "") == "ORDER"), 1000)


def title_of(name: str) -> str:
    """The name of a page in the frame."""
    return "Home" if name == "app" else name.replace("_", " ").capitalize()


@contextmanager
def page(file: str, doc: str | None) -> Iterator[url.State]:
    """Draw the frame and hand out the page's URL state; the first paragraph of the page's docstring is
    the sentence under the title.

    A ValueError, TypeError, RunError, BuildError or OSError from inside is shown as its one sentence above
    what was drawn until then, not as a stack trace (that goes to the server's log).
    """
    name = Path(file).stem
    st.set_page_config(page_title=jobs.tab_title(title_of(name)), layout="wide")
    entrance.require()
    style.apply()
    jobs.announce()
    state = url.State(name)
    left, right = st.columns([5, 1], vertical_alignment="top")
    with left:
        st.title(title_of(name) if name != "app" else "FuseScope", anchor=False)
        st.caption(" ".join((doc or "").partition("\n\n")[0].split()))
    with st.sidebar:
        st.html('<div class="fs-brand">FuseScope<span>Correctness and timing for CUDA kernels</span></div>')
        for other, path in pages().items():
            st.page_link(
                path,
                label=title_of(other),
                query_params=url.last(other) if other != name else url.of_list(name),
            )
        device.panel(state)
        jobs.panel()
        device.live()
    problems = st.container()
    for text in callbacks.refused():
        problems.error(md(text))
    try:
        yield state
    except callbacks.REFUSALS as error:
        _LOG.warning("page %s: %s", name, error, exc_info=True)
        problems.error(md(sentence(error)))
        state.keep_rest()
    state.unread()
    for problem in state.problems:
        problems.warning(md(problem))
    device.keep(state)
    state.commit()
    with right:
        _address()


@st.fragment
def _address() -> None:
    """Read when it is opened: a part of the page may have changed it since the page was drawn."""
    settings = {"help": "The address of this page with all its settings", "on_change": "rerun"}
    corner = st.container(horizontal_alignment="right")
    with corner.popover("Copy link", key="address", **settings) as opened:
        if opened.open:
            st.code(url.here(), language=None, wrap_lines=True)
