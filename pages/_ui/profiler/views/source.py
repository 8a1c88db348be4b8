"""Warp stall samples per line of source and per instruction, of a source page of Nsight Compute."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from fusescope.charts import numbers
from fusescope.charts.escape import label
from fusescope.charts.numbers import plural
from fusescope.charts.profile import source_lines
from pages._ui.app import cached_chart, url
from pages._ui.forms import fields
from pages._ui.profiler import sentences
from pages._ui.profiler.data import Profile
from pages._ui.widgets import elements, style
from pages._ui.widgets.text import md

_KINDS = {"line": "source", "sass": "instructions"}
_TOP = 3  # reasons of a line that the table names
_SHOWN = 2000
_WHY = dict.fromkeys(("samples", "share (%)", "executed"), "the report has no such figure of this line")


def draw(state: url.State, found: Profile) -> None:
    """The hottest line as a sentence, the chart, and the listing with its samples; of one launch."""
    rows = sentences.rows(found, "ncu_source")
    names = {r["launch"]: f"{r['launch']}: {label(r['kernel'], 70)}" for r in rows}
    launch = next(iter(names))
    with st.container(horizontal=True, gap="small", vertical_alignment="bottom"):
        if len(names) > 1:
            launch = fields.pick(
                state, "source_of", "launch", names, launch, found.id, width=420, format_func=names.get
            )
        rows = [r for r in rows if r["launch"] == launch]
        kinds = [k for k in _KINDS if any(r["kind"] == k for r in rows)]
        kind = fields.segments(
            state, "listing", "listing", kinds, kinds[0], scope=found.id, format_func=_KINDS.get
        )
    rows = [r | {"samples": _known(r["samples"])} for r in rows if r["kind"] == kind]
    st.markdown(f"**{_hottest(rows)}**")
    title = "Warp stalls by line" if kind == "line" else "Warp stalls by instruction"
    fig = cached_chart.once(
        ("source", found.id, found.stamp, launch, kind, style.theme()),
        lambda: source_lines.bars(rows, title, sentences.subtitle(found), style.theme()),
    )
    listing = table(rows)
    elements.chart(fig, found.name("warp-stalls"), listing)
    only = st.toggle("only lines with samples", key="profiler/source_only", value=kind == "sass")
    shown = listing[listing["samples"].fillna(0) > 0] if only else listing
    if len(shown) > _SHOWN:
        st.caption(f"The first {_SHOWN:,} of {plural(len(shown), 'line')}; the CSV has all.")
    elements.table(shown.head(_SHOWN), found.name("source"), listing, height=560, why=_WHY)
    elements.note(
        "Samples of warps under Nsight Compute, at the instruction they stood on; an instruction is charged "
        "for what it waits for, which may be a load some lines above."
    )


def overview(found: Profile) -> None:
    """The hottest line of each launch, for the overview of a source page."""
    by: dict[int, list[dict]] = {}
    for row in sentences.rows(found, "ncu_source"):
        by.setdefault(row["launch"], []).append(row | {"samples": _known(row["samples"])})
    st.subheader("Warp stalls by line", anchor=False)
    for rows in list(by.values())[:10]:
        lines = [r for r in rows if r["kind"] == "line"] or rows
        st.markdown(f"{md(label(rows[0]['kernel'], 90))}: {_hottest(lines)}")
    st.caption("Every line and instruction is under Nsight Compute.")


def table(rows: list[dict]) -> pd.DataFrame:
    """The listing: where, samples, share, reasons, text."""
    total = sum(r["samples"] or 0 for r in rows) or 1
    return pd.DataFrame(
        {
            "at": [source_lines.where(r) for r in rows],
            "samples": pd.array([r["samples"] for r in rows], dtype="Int64"),
            "share (%)": [None if r["samples"] is None else 100 * r["samples"] / total for r in rows],
            "waits for": [_reasons(r) for r in rows],
            "executed": pd.array([_known(r["instructions"]) for r in rows], dtype="Int64"),
            "text": [r["text"] or "" for r in rows],
        }
    ).astype({"share (%)": float})


def _hottest(rows: list[dict]) -> str:
    total = sum(r["samples"] or 0 for r in rows)
    if not total:
        return "No line has a sample; ncu --section SourceCounters collects them."
    top = max(rows, key=lambda r: r["samples"] or 0)
    reason = next((r for r, _ in source_lines.reasons(top) if r != "selected"), None)
    because = f", mostly {source_lines.said(reason)}" if reason else ""
    return (
        f"{md(source_lines.where(top))} has {numbers.percent(top['samples'] / total)} of "
        f"{total:,} samples{md(because)}: {md((top['text'] or '').strip()[:90])}"
    )


def _reasons(row: dict) -> str:
    found = [(k, n) for k, n in source_lines.reasons(row) if k != "selected"][:_TOP]
    whole = row["samples"] or sum(n for _, n in found) or 1
    return ", ".join(f"{source_lines.said(k)} {numbers.percent(min(1.0, n / whole))}" for k, n in found)


def _known(value) -> int | None:
    return None if value is None or value != value else int(value)
