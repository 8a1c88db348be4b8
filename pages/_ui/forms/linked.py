"""Files and folders that a link names: shown, and taken by Run only after a click, because anybody can make a
link."""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

import streamlit as st

from fusescope import ops
from fusescope.charts.numbers import plural
from pages._ui.app import url
from pages._ui.guard import confirmed as of_browser
from pages._ui.widgets import elements
from pages._ui.widgets.text import md

_CONFIRMED = "linked/confirmed"
_MOST = 64 * 1024  # bytes of a file that are shown


def ask(state: url.State, key: str, paths: Iterable[str]) -> None:
    """Show those of ``paths`` (file.py:function, a file, a folder) that came by the URL into the widget of
    that key and were neither typed nor confirmed, in this session or, with the same content, by this browser;
    ``refuse`` then keeps Run back."""
    given = str(st.session_state.get(url.came_from_url(key), ""))
    linked = {given.strip(), *given.split()}
    confirmed = st.session_state.get(_CONFIRMED, [])
    paths = [p for p in paths if p]
    typed = [p for p in paths if p not in linked and p not in confirmed]
    for path in typed:
        of_browser.remember(path, of_browser.content(_file(path)))
    asked = [p for p in paths if p in linked and p not in confirmed and os.path.exists(_file(p))]
    contents = {p: of_browser.content(_file(p)) for p in asked}
    known = [p for p, content in contents.items() if of_browser.remembered(p, content)]
    st.session_state[_CONFIRMED] = [*confirmed, *typed, *known]
    pending = [p for p in contents if p not in known]
    if not pending:
        return
    state.unconfirmed += pending
    with st.container(border=True):
        st.markdown(
            f"**This link names {plural(len(pending), 'file')} of this machine.** Run takes "
            f"{'it' if len(pending) == 1 else 'them'} only after you have confirmed."
        )
        for path in pending:
            _show(path)
        st.button(
            "Use it" if len(pending) == 1 else "Use them",
            key=f"{key}/confirm",
            on_click=_confirm,
            args=({p: contents[p] for p in pending},),
        )


def refuse(state: url.State) -> None:
    """ValueError while something that came by the URL waits to be confirmed."""
    if state.unconfirmed:
        raise ValueError(f"confirm what the link names before Run takes it: {', '.join(state.unconfirmed)}")


def _confirm(contents: dict[str, str]) -> None:
    """Take these paths, with the contents that were shown."""
    st.session_state[_CONFIRMED] = [*st.session_state.get(_CONFIRMED, []), *contents]
    for path, content in contents.items():
        of_browser.remember(path, content)


def _show(path: str) -> None:
    """Where it lies, who wrote it when, and the source of what would run."""
    file = _file(path)
    try:
        found = file.stat()
        written = datetime.fromtimestamp(found.st_mtime).strftime("%d %b %Y %H:%M")
        st.markdown(f"{md(str(file.resolve()))} · of {md(_owner(file))} · changed {written}")
        if ops.is_user(path) and file.is_file():
            with st.expander(f"Source: {md(path.rpartition(':')[2])} would run as you", expanded=True):
                with open(file, "rb") as opened:
                    text = opened.read(_MOST).decode("utf-8", "replace")
                elements.listing(text + ("\n…" if found.st_size > _MOST else ""), "python", 240)
    except (OSError, ValueError) as error:
        st.markdown(f"{md(path)}: {md(str(getattr(error, 'strerror', None) or error))}")


def _file(path: str) -> Path:
    """The file or folder; reading it refuses one that does not exist."""
    return Path(os.path.expanduser(path.rpartition(":")[0] if ops.is_user(path) else path))


def _owner(file: Path) -> str:
    try:
        return file.owner()
    except KeyError:
        return f"user {file.stat().st_uid}"
