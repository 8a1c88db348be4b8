"""The library of runs: filters and order, one page of the list at a time, a selection, a run imported."""

from __future__ import annotations

import tempfile
from pathlib import Path

import streamlit as st

from fusescope import ops
from fusescope.charts.numbers import plural
from fusescope.core.errors import RunError
from fusescope.core.records import RUN_STATES
from fusescope.jobs import kinds
from fusescope.store import library, transfer
from pages._ui.answer import run_table
from pages._ui.app import callbacks, url
from pages._ui.forms import fields
from pages._ui.runs import saved_views, selection
from pages._ui.widgets.text import file_name, md, sentence

_PAGE = 25
WORDS = (
    "Each word in id, title, notes, tags, device, operator, model, implementations, shapes, masks, dtype, "
    'status, in any order; "8 masks" in quotes stands as it is; “unequal” finds packed and padded sequences'
)
"""What a search for runs finds, here and where runs are compared."""
_ANY = "any"
_SOURCES = {_ANY: "any", "no": "this machine", "yes": "recorded"}


def draw(state: url.State) -> None:
    """The whole library."""
    if run_id := run_table.opened():
        st.switch_page("pages/runs.py", query_params={"run": run_id})
    filters = _filters(state)
    page = state.seed("page", 1, url.whole(1, 100_000))
    found, total = library.runs(limit=_PAGE, offset=(st.session_state[page] - 1) * _PAGE, **filters)
    last = max(1, -(-total // _PAGE))
    if not found and st.session_state[page] > 1:
        st.session_state[page] = last
        found, total = library.runs(limit=_PAGE, offset=(last - 1) * _PAGE, **filters)
    if not total:
        _nothing(filters)
    else:
        actions = st.container()
        drawing = st.session_state.get("runs/drawing", 0)
        ticked = run_table.select(found, f"runs/table/{drawing}", selection.chosen(), _columns(state))
        with actions:
            selection.bar(selection.update([run.id for run in found], ticked))
        _pages(page, last, total)
    state.keep("page", st.session_state[page], 1)
    url.remember_list(state)
    _unreadable(library.broken())
    _import()


def _columns(state: url.State) -> list[str] | None:
    """The columns chosen; None for those that tell the runs apart."""
    return st.session_state[state.key("columns")] or None


def _known(names: list[str]) -> list[str]:
    if unknown := [n for n in names if n not in run_table.COLUMNS]:
        raise ValueError(f"{unknown[0]} is not one of {', '.join(run_table.COLUMNS)}")
    return names


def _filters(state: url.State) -> dict:
    names = {
        "kind": [_ANY, *kinds.names()],
        "status": [_ANY, *RUN_STATES],
        "op": [_ANY, *ops.names()],
        "recorded": list(_SOURCES),
        "order": list(library.ORDERS),
    }
    labels = {"op": "operator", "recorded": "source", "order": "sort by"}
    with st.container(key="filters", gap="small"):
        boxes = [
            *st.columns(5, gap="small"),
            *st.columns([5, 1, 1], gap="small", vertical_alignment="bottom"),
        ]
    chosen = {}
    for box, (name, options) in zip(boxes, names.items(), strict=False):
        value = fields.pick(
            state,
            name,
            labels.get(name, name),
            options,
            box=box,
            on_change=_first_page,
            format_func=_SOURCES.get if name == "recorded" else str,
        )
        chosen[name] = None if value == _ANY else value
    text = fields.text(
        state,
        "text",
        "Search",
        box=boxes[-3],
        placeholder="title, tag, device, seq=512 …",
        on_change=_first_page,
        help=WORDS,
    )
    with boxes[-2].popover("Columns", width="stretch"):
        key = state.seed("columns", [], lambda text: _known(text.split(",")))
        st.multiselect("columns", run_table.COLUMNS, key=key, placeholder="those that tell the runs apart")
    state.keep("columns", ",".join(st.session_state[key]))
    with boxes[-1]:
        saved_views.draw(state)
    chosen["recorded"] = {"yes": True, "no": False}.get(chosen["recorded"])
    return chosen | {"text": text or None}


def _pages(page: str, last: int, total: int) -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        first, end = st.session_state[page] <= 1, st.session_state[page] >= last
        st.button("‹ previous", disabled=first, on_click=_turn, args=(page, -1), key="runs/previous")
        st.button("next ›", disabled=end, on_click=_turn, args=(page, 1), key="runs/next")
        st.caption(f"{plural(total, 'run')}, page {st.session_state[page]} of {last}", width="stretch")


def _nothing(filters: dict) -> None:
    if any(v is not None for name, v in filters.items() if name != "order"):
        st.info("No run matches these filters.")
        if st.button("Clear filters", type="primary", key="runs/clear"):
            st.switch_page("pages/runs.py")
        return
    st.markdown("Nothing has been measured here yet, and no recorded runs ship with this checkout.")
    st.page_link("pages/kernels.py", label="**Run a first comparison →**")


def _unreadable(broken: list[tuple[str, str]]) -> None:
    """A row for each run that cannot be read: why, where its folder is, and a way to be rid of it."""
    for run_id, reason in broken[:_PAGE]:
        with st.container(border=True):
            said, where, away = st.columns([8, 2, 1.4], gap="small", vertical_alignment="center")
            said.markdown(f"**{md(run_id)}** unreadable: {md(reason)}")
            with where.popover("Open folder", width="stretch"):
                st.code(str(library.find(run_id)), language=None, wrap_lines=True)
            with away.popover("Delete", width="stretch"):
                st.markdown(f"Delete **{md(run_id)}** and all its files? This cannot be undone.")
                st.button(
                    "Delete it",
                    type="primary",
                    key=f"runs/delete/{run_id}",
                    on_click=callbacks.careful(transfer.delete),
                    args=(run_id,),
                )
    if len(broken) > _PAGE:
        st.caption(f"{len(broken) - _PAGE:,} more runs are unreadable; “fusescope runs list” names them.")


def _import() -> None:
    with st.expander("Import a run"):
        upload = st.file_uploader(
            "exported run (.fsrun.tar.gz or .zip)", key="runs/upload", type=["gz", "zip"]
        )
        if upload is None:
            return
        if st.button("Import", type="primary", key="runs/import"):
            with tempfile.TemporaryDirectory() as home:
                file = Path(home) / file_name(upload.name, "run")
                file.write_bytes(upload.getbuffer())
                try:
                    run_id = transfer.load(file)
                except (ValueError, RunError, OSError) as error:
                    st.error(sentence(error))
                    return
            st.switch_page("pages/runs.py", query_params={"run": run_id})


def _turn(page: str, step: int) -> None:
    st.session_state[page] += step


def _first_page() -> None:
    st.session_state["runs/page"] = 1
