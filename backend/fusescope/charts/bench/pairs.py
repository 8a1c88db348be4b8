"""Two runs against each other: a bar for every implementation and case both have, the time of A over that of
B."""

from __future__ import annotations

import json

import pandas as pd
import plotly.graph_objects as go

from fusescope.charts import axes, numbers, template, verdicts
from fusescope.charts.colours import colour, short

_MOST = 60
"""Bars drawn; the table below the chart holds every pair."""
_ROW, _ABOVE = 46, 18  # pixels: a bar with the line above it, and from the middle of the one to the other
_LABEL = 34  # characters that fit next to the verdict on the narrowest chart


def bars(data: pd.DataFrame, subtitle: str = "", theme: str = "light") -> go.Figure:
    """``data`` as store.compare.pairs gives it (impl, case as JSON, ratio = a / b, verdict, a_ms, b_ms)."""
    known = data[data["ratio"].notna()].head(_MOST)
    if known.empty:
        return template.empty("No implementation has a time for the same case in both runs.", theme)
    labels = [
        f"{short(i)}{_varying(case, known['case'])}"
        for i, case in zip(known["impl"], known["case"], strict=True)
    ]
    rows = list(range(len(known)))[::-1]
    fig = template.figure("Speed-up of B over A", subtitle, theme, height=130 + _ROW * len(rows))
    named = {}
    for y, label, (_, row) in zip(rows, labels, known.iterrows(), strict=True):
        verdict = verdicts.verdict(row["verdict"], 0, 0)
        headline = verdicts.headline(row["ratio"], verdict)
        axes.ratio_bar(
            fig,
            y,
            row["ratio"],
            None,
            "",
            marker=dict(color=colour(row["impl"])),
            hovertemplate=f"<b>{label}</b><br>A {numbers.time(row['a_ms'])}, B {numbers.time(row['b_ms'])}"
            f"<br>{headline}<extra></extra>",
        )
        named[y] = (label if len(label) <= _LABEL else label[: _LABEL - 1] + "…", f"<b>{headline}</b>")
    fig.update_xaxes(**axes.ratio(list(known["ratio"])), title_text="time in A over time in B (log)")
    axes.named_rows(fig, rows, linecolor="rgba(0,0,0,0)")
    axes.line_at(fig, theme, x=1)
    axes.row_labels(fig, named, _ABOVE, theme)
    fig.update_layout(margin=dict(l=8, r=12, b=50))
    return fig


def _varying(case: str, every) -> str:
    """What tells this case from the others: " seq=512"; empty where all are of one case."""
    cases = [json.loads(c) for c in every.unique()]
    mine = json.loads(case)
    keys = [k for k in mine if len({str(c.get(k)) for c in cases}) > 1]
    return "".join(f" {k}={mine[k]}" for k in keys)
