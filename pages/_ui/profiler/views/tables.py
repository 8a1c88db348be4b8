"""The tables of a profile, a page at a time: sorted and searched on the server, complete as CSV."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from fusescope.charts.numbers import plural
from pages._ui.app import url
from pages._ui.forms import fields
from pages._ui.profiler import data, sentences
from pages._ui.profiler.data import Profile
from pages._ui.routes import perfetto
from pages._ui.widgets import html_table

_TITLES = {
    "kernel_summary": "Kernels",
    "operator_summary": "Operators",
    "module_summary": "Modules",
    "steps": "Steps",
    "kernels": "Kernel launches",
    "copies": "Memcpy/memset",
    "launches": "API calls",
    "gaps": "Gaps",
    "operators": "Operator calls",
    "ranges": "Ranges",
    "memory": "Allocations",
    "segments": "Segments",
    "counters": "Counters",
    "ncu_kernels": "ncu launches",
    "ncu_metrics": "ncu metrics",
    "ncu_stalls": "ncu stalls",
    "ncu_rules": "ncu advice",
    "telemetry": "Telemetry",
}
_FIRST = {
    "kernel_summary": "total_ns",
    "operator_summary": "self_device_ns",
    "module_summary": "total_device_ns",
    "kernels": "dur_ns",
    "copies": "dur_ns",
    "launches": "dur_ns",
    "gaps": "dur_ns",
    "operators": "dur_ns",
    "ranges": "dur_ns",
    "memory": "ts_ns",
    "ncu_kernels": "duration_ns",
    "ncu_stalls": "share",
    "steps": "ts_ns",
    "segments": "bytes",
}
"""The initial order of a table, largest first."""
_HIDDEN = {
    "external_id",
    "correlation",
    "cat",
    "parent",
    "launch",
    "operator",
    "device_type",
    "addr",
    "sequence",
    "threads",
}
_LEAD = ("name", "module", "step")
_SIZES = (25, 50, 100, 200)


def draw(state: url.State, found: Profile) -> None:
    """One table, its page, order and search in a row above it."""
    there = [t for t in _TITLES if found.has(t)]
    if not there:
        sentences.tables_missing(found) or sentences.lacks("tables", "Choose another profile.")
        return
    table = fields.segments(
        state, "table", "table", there, format_func=_TITLES.get, label_visibility="collapsed"
    )
    state.scopes.add(table)
    columns = list(data.columns(str(found.path), table, found.stamp))
    first = _FIRST.get(table) if _FIRST.get(table) in columns else columns[0]
    a, b, c, d = st.columns([2, 1.4, 0.8, 0.7], vertical_alignment="bottom", gap="small")
    text = fields.text(state, "find", "search", box=a, placeholder="part of a name", on_change=_begin)
    order = fields.pick(
        state, "order", "order by", columns, first, table, b, format_func=_plain, on_change=_begin
    )
    rising = fields.yes(state, "rising", "ascending", table, c, on_change=_begin)
    size = fields.pick(state, "rows", "rows", _SIZES, _SIZES[1], box=d, on_change=_begin)
    number = state.seed("page", 1, url.whole(1, 10**9), table)
    page, total = _page(found, table, order, not rising, text, size, st.session_state[number])
    last = max(1, -(-total // size))
    if st.session_state[number] > last:
        st.session_state[number] = last
        page, total = _page(found, table, order, not rising, text, size, last)
    state.keep("page", st.session_state[number], 1)
    shown = page.drop(columns=[c for c in page.columns if c in _HIDDEN])
    if not ((found.summary or {}).get("coverage") or {}).get("module"):
        shown = shown.drop(columns=[c for c in ("module",) if c in shown and table != "module_summary"])
    if not found.has("steps"):
        shown = shown.drop(columns=[c for c in ("step",) if c in shown])
    known = [c for c in shown if shown[c].notna().any()]
    rest = [c for c in shown if c not in known]  # empty on this page: last
    shown = shown[[*(c for c in _LEAD if c in known), *(c for c in known if c not in _LEAD), *rest]]
    zero = ((found.summary or {}).get("span_ns") or [None])[0]
    html_table.draw(_readable(sentences.units(shown, zero)), sentences.why(table), f"profile-{table}", 640)
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.button(
            "‹",
            disabled=st.session_state[number] <= 1,
            on_click=_turn,
            args=(number, -1),
            key="profiler/previous",
            help="previous page",
        )
        st.button(
            "›",
            disabled=st.session_state[number] >= last,
            on_click=_turn,
            args=(number, 1),
            key="profiler/next",
            help="next page",
        )
        st.caption(f"{plural(total, 'row')}, page {st.session_state[number]:,} of {last:,}", width="stretch")
        st.link_button(
            "CSV of the whole table",
            perfetto.csv_address(found.id, table, found.rank),
            type="tertiary",
            key="profiler/csv",
        )


def _page(found: Profile, table: str, order: str, falling: bool, text: str, size: int, number: int):
    return data.page(str(found.path), table, order, falling, text, size, (number - 1) * size, found.stamp)


def _readable(table: pd.DataFrame) -> pd.DataFrame:
    """Counts as whole numbers though some are missing, and starts to a tenth of a µs, which three digits
    would not tell apart."""
    found = {}
    for column in table.columns:
        values = table[column]
        if column == "start (ms)":
            values = values.map("{:.4f}".format, na_action="ignore")
        elif values.dtype.kind == "f" and "(" not in column and (values.dropna() % 1 == 0).all():
            values = values.astype("Int64")
        found[column] = values
    return pd.DataFrame(found)


def _plain(column: str) -> str:
    """A column's name as the table heads it, without its unit."""
    if column == "ts_ns":
        return "start"
    name = sentences.NAMED.get(column, column)
    name = name.removesuffix("_ns").removesuffix("_bytes").replace("_", " ")
    return "time" if name == "dur" else name


def _turn(key: str, step: int) -> None:
    st.session_state[key] += step


def _begin() -> None:
    for key in [k for k in st.session_state if str(k).startswith("profiler/") and str(k).endswith("/page")]:
        st.session_state[key] = 1
