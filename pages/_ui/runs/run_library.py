"""The library of runs: filters, one page of the list at a time, two selected runs compared, a run
imported."""

from __future__ import annotations

import tempfile
from pathlib import Path

import streamlit as st

from fusescope import ops
from fusescope.core.errors import RunError
from fusescope.core.records import RUN_STATES
from fusescope.jobs import kinds
from fusescope.store import library, transfer
from pages._ui.answer import run_table
from pages._ui.app import url
from pages._ui.forms import fields
from pages._ui.widgets.text import file_name, md, plural, sentence

_PAGE = 25
_ANY = "any"
_SOURCES = {_ANY: "any", "no": "this machine", "yes": "recorded"}


def draw(state: url.State) -> None:
    """The whole library."""
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
        selected = run_table.select(found, "runs/table")
        _below(state, page, last, total, selected)
    for run_id, reason in library.broken():
        st.warning(f"**{md(run_id)}** cannot be read: {md(reason)}")
    _import()


def _filters(state: url.State) -> dict:
    names = {
        "kind": [_ANY, *kinds.names()],
        "status": [_ANY, *RUN_STATES],
        "op": [_ANY, *ops.names()],
        "recorded": list(_SOURCES),
    }
    labels = {"op": "operator", "recorded": "source"}
    boxes = st.columns([1, 1, 1, 1, 2], gap="small")
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
        box=boxes[-1],
        placeholder="title, tag, device, implementation …",
        on_change=_first_page,
        help="Each word in id, title, notes, tags, device, operator, implementations, dtype or status",
    )
    chosen["recorded"] = {"yes": True, "no": False}.get(chosen["recorded"])
    return chosen | {"text": text or None}


def _below(state: url.State, page: str, last: int, total: int, selected: list) -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.button(
            "‹ newer", disabled=st.session_state[page] <= 1, on_click=_turn, args=(page, -1), key="runs/newer"
        )
        st.button(
            "older ›",
            disabled=st.session_state[page] >= last,
            on_click=_turn,
            args=(page, 1),
            key="runs/older",
        )
        st.caption(
            f"{plural(total, 'run')}, page {st.session_state[page]} of {last}",
            width="stretch",
        )
        if len(selected) == 2:
            a, b = sorted(selected, key=lambda r: r.created or 0)
            if st.button("Compare", type="primary", key="runs/compare"):
                st.switch_page("pages/runs.py", query_params={"compare": f"{a.id},{b.id}"})
        else:
            st.button(
                "Compare",
                disabled=True,
                key="runs/compare_off",
                help="Select two runs in the table",
            )
    state.keep("page", st.session_state[page], 1)


def _nothing(filters: dict) -> None:
    if any(v is not None for v in filters.values()):
        st.info("No run matches these filters.")
        if st.button("Clear filters", type="primary", key="runs/clear"):
            st.switch_page("pages/runs.py")
        return
    st.markdown("Nothing has been measured here yet, and no recorded runs ship with this checkout.")
    st.page_link("pages/kernels.py", label="**Run a first comparison →**")


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
