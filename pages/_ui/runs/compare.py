"""Two runs side by side: first how their conditions differ, then the ratio of every pair of records."""

from __future__ import annotations

import json

import pandas as pd
import streamlit as st

from fusescope.charts import captions, numbers, tables
from fusescope.charts.bench import pairs
from fusescope.core import same_code
from fusescope.core.errors import RunError
from fusescope.store import compare, library
from pages._ui.answer import answer
from pages._ui.app import run_data, url
from pages._ui.widgets import elements, style
from pages._ui.widgets.text import md, sentence


def wanted(state: url.State) -> tuple[str, str] | None:
    """The two ids in ?compare=A,B; None where there are not two readable runs."""
    text = state.query.get("compare")
    if not text:
        return None
    names = text.split(",")
    try:
        if len(names) != 2:
            raise ValueError(f"compare takes two run ids separated by a comma, not {text[:80]!r}")
        return library.find(names[0]).name, library.find(names[1]).name
    except (ValueError, RunError) as error:
        state.problems.append(f"{sentence(error)}.")
        return None


def draw(state: url.State, a: str, b: str) -> None:
    """The comparison: b against a."""
    state.keep("compare", f"{a},{b}")
    st.page_link("pages/runs.py", label="‹ All runs")
    left, right = run_data.read(a), run_data.read(b)
    for name, run in (("A", left), ("B", right)):
        answer.heading(run, f"{name}: ")
    found = compare.differences(a, b)
    if found:
        st.warning(
            "**Measured under different conditions:**\n\n" + "\n".join(f"- {md(line)}" for line in found)
        )
    else:
        st.success("Measured under the same conditions, as far as both runs recorded them.")
    data = compare.pairs(a, b)
    if data.empty:
        st.info("Neither run has a result to compare.")
        return
    subtitle = f"A: {captions.context(left)} · B: {captions.context(right)}"
    elements.chart(pairs.bars(data, subtitle, style.theme()), f"compare-{a}-{b}", data)
    elements.table(
        table(data), f"compare-table-{a}-{b}", data, why=lambda row, column: _why(data.iloc[row], column)
    )
    elements.note(
        "The two runs were not interleaved: “faster” means that the 95 % intervals do not overlap, which "
        "is weaker "
        "evidence than a comparison within one run."
    )


def _why(row: pd.Series, column: str) -> str:
    """Why a cell is empty: a side is missing, has no latency, or is no kernel with a source."""
    if column == "same machine code":
        return "the source of one of them is unknown: a peer, or no result"
    for side in column[0] if column[1:3] == " (" else "AB":
        status = row[f"{side.lower()}_status"]
        if status != "ok":
            return (
                f"{side} has no such result"
                if status == "missing"
                else f"{side} is {status}, so it has no latency"
            )
    return "they have no time in the same mode: eager or graph, cold or warm"


def table(data: pd.DataFrame) -> pd.DataFrame:
    """Readable columns of ``compare.pairs``: one row per implementation and case."""
    unit, factor = numbers.time_unit([*data["a_ms"].dropna(), *data["b_ms"].dropna()])
    cases = [json.loads(c) for c in data["case"]]
    keys = tables.varying_values(cases)
    return pd.DataFrame(
        {
            "implementation": data["impl"],
            "case": [", ".join(f"{k}={one.get(k)}" for k in keys) or "the case" for one in cases],
            "verdict (B vs A)": data["verdict"].replace("cannot tell", "inconclusive"),
            "A / B (×)": data["ratio"],
            f"A ({unit})": data["a_ms"] * factor,
            f"B ({unit})": data["b_ms"] * factor,
            "A": data["a_status"],
            "B": data["b_status"],
            "same machine code": [
                None if pd.isna(a) or pd.isna(b) else same_code.same(op, impl, a, b)
                for op, impl, a, b in data[["op", "impl", "a_hash", "b_hash"]].itertuples(index=False)
            ],
        }
    )
