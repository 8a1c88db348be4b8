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


def bars(data: pd.DataFrame, subtitle: str = "", theme: str = "light") -> go.Figure:
    """``data`` as store.compare.pairs gives it (impl, case as JSON, ratio = a / b, verdict, a_ms, b_ms)."""
    known = data[data["ratio"].notna()].head(_MOST)
    if known.empty:
        return template.empty("No implementation has a time for the same case in both runs.", theme)
    labels = [
        f"{short(i)}{_varying(case, known['case'])} "
        for i, case in zip(known["impl"], known["case"], strict=True)
    ]
    rows = list(range(len(known)))[::-1]
    fig = template.figure("Speed-up of B over A", subtitle, theme, height=130 + 30 * len(rows))
    for y, label, (_, row) in zip(rows, labels, known.iterrows(), strict=True):
        verdict = verdicts.verdict(row["verdict"], 0, 0)
        fig.add_bar(
            y=[y],
            x=[row["ratio"] - 1],
            base=1,
            orientation="h",
            width=0.6,
            marker=dict(color=colour(row["impl"])),
            hovertemplate=f"<b>{label}</b><br>A {numbers.time(row['a_ms'])}, B {numbers.time(row['b_ms'])}"
            f"<br>{numbers.ratio(row['ratio'])} {verdict}<extra></extra>",
        )
        axes.at_right(fig, f"<b>{verdicts.headline(row['ratio'], verdict)}</b>", y)
    fig.update_xaxes(**axes.ratio(list(known["ratio"])), title_text="time in A over time in B (log)")
    fig.update_yaxes(tickvals=rows, ticktext=labels, range=[-0.6, len(rows) - 0.4], showgrid=False, ticks="")
    axes.line_at(fig, theme, x=1)
    fig.update_layout(margin=dict(l=8, r=150, b=50))
    return fig


def _varying(case: str, every) -> str:
    """What tells this case from the others: " seq=512"; empty where all are of one case."""
    cases = [json.loads(c) for c in every.unique()]
    mine = json.loads(case)
    keys = [k for k in mine if len({str(c.get(k)) for c in cases}) > 1]
    return "".join(f" {k}={mine[k]}" for k in keys)
