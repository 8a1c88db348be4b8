"""Named views of the list of runs: a name for the filters, order and columns of an address, kept next to
the runs for every visitor of this server."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from fusescope.core import paths, whole_files
from fusescope.store import files
from pages._ui.answer import run_table
from pages._ui.app import callbacks, url
from pages._ui.widgets.text import md

KEPT = ("kind", "status", "op", "recorded", "order", "text", "columns")
"""What of the address a view keeps."""
_MOST, _LONG = 50, 60
_NAME = "runs/views/name"


def draw(state: url.State) -> None:
    """A button that opens the views: one click each; the one on show can be saved under a name. Called when
    the filters are drawn and kept in ``state``."""
    saved, now = read(), {k: v for k, v in state.out.items() if k in KEPT}
    with st.popover("Views", width="stretch"):
        for name, query in saved.items():
            opened, away = st.columns([5, 2], vertical_alignment="center", gap="small", wrap=False)
            label = f"**{md(name)}** (on show)" if query == now else md(name)
            opened.button(
                label, key=f"runs/views/show/{name}", type="tertiary", on_click=_show, args=(query,)
            )
            away.button("Delete", key=f"runs/views/{name}", on_click=callbacks.careful(_delete), args=(name,))
        if not saved:
            st.caption("No view is saved yet.")
        st.text_input("name for this view", key=_NAME, max_chars=_LONG, placeholder="H200, causal")
        st.button("Save", key="runs/views/save", on_click=callbacks.careful(_save), args=(now,))
        st.caption(
            f"Filters, order and columns: {md(', '.join(f'{k}={v}' for k, v in now.items()) or 'none')}"
        )


def read() -> dict[str, dict[str, str]]:
    """Name → query of every view, in the order of their names; what the file holds besides is ignored."""
    found = whole_files.read_object(_file())
    views = {
        str(name)[:_LONG]: {k: v for k, v in query.items() if k in KEPT and isinstance(v, str)}
        for name, query in found.items()
        if isinstance(query, dict)
    }
    return dict(sorted(views.items(), key=lambda view: view[0].lower())[:_MOST])


def _show(query: dict[str, str]) -> None:
    """Put the view's settings into the widgets; what it does not name is as on a first visit."""
    for name in KEPT:
        value: object = query.get(name, "")
        if name == "columns":
            value = [c for c in str(value).split(",") if c in run_table.COLUMNS]
        st.session_state[f"runs/{name}"] = value
    st.session_state["runs/page"] = 1


def _save(query: dict[str, str]) -> None:
    name = " ".join(st.session_state[_NAME].split())
    saved = read()
    if not name:
        raise ValueError("give the view a name")
    if not query:
        raise ValueError("nothing is filtered or sorted: the view would be the whole list")
    if name not in saved and len(saved) >= _MOST:
        raise ValueError(f"{_MOST} views are saved; delete one first")
    _write(saved | {name: query})
    st.session_state[_NAME] = ""


def _delete(name: str) -> None:
    _write({n: query for n, query in read().items() if n != name})


def _write(views: dict[str, dict[str, str]]) -> None:
    _file().parent.mkdir(parents=True, exist_ok=True)
    files.write_json(_file(), views)


def _file() -> Path:
    return paths.profiles() / "views" / "runs.json"
