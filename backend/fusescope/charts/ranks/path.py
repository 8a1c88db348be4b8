"""The critical path over ranks: what it consists of, and on which rank it runs when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from fusescope.charts import axes, numbers, template
from fusescope.charts.colours import SERIES
from fusescope.charts.escape import label
from fusescope.charts.ranks.words import legend

COLOURS = {
    "compute": SERIES[0],
    "communication": SERIES[5],
    "memcpy/memset": SERIES[2],
    "idle: host had not launched": SERIES[1],
    "idle: dependency or launch latency": "#8A9199",
    "idle": "#B0B7BF",
}
MOST = 1500
"""Segments; of more the longest are drawn."""


def line(rows: Sequence[Mapping], subtitle: str = "", theme: str = "light") -> go.Figure:
    """Each segment on the lane of its rank. rows: of the table critical_path, in order of time."""
    if not rows:
        return template.empty("There is no critical path: no rank has an activity that lasts.", theme)
    zero = rows[0]["ts_ns"]
    whole = sum(r["dur_ns"] for r in rows)
    shown = sorted(sorted(rows, key=lambda r: -r["dur_ns"])[:MOST], key=lambda r: r["ts_ns"])
    ranks = sorted({r["rank"] for r in rows})
    share = sum(r["dur_ns"] for r in shown) / max(1, whole)
    more = (
        f"the {MOST:,} longest of {len(rows):,} segments, {numbers.percent(share)} of it"
        if len(rows) > MOST
        else ""
    )
    fig = template.figure("Critical path", template.join(subtitle, more), theme, height=240 + 26 * len(ranks))
    unit, factor = numbers.time_unit([whole / 1e6])
    for kind, colour in COLOURS.items():
        mine = [r for r in shown if r["kind"] == kind]
        if not mine:
            continue
        share = sum(r["dur_ns"] for r in rows if r["kind"] == kind) / max(1, whole)
        fig.add_bar(
            orientation="h",
            base=[(r["ts_ns"] - zero) / 1e6 * factor for r in mine],
            x=[r["dur_ns"] / 1e6 * factor for r in mine],
            y=[f"rank {r['rank']}" for r in mine],
            name=f"{kind} {numbers.percent(share)}",
            marker=dict(color=colour, line=dict(width=0)),
            customdata=[label(r["name"] or "", 60) for r in mine],
            hovertemplate=f"%{{y}}, {kind}<br>%{{customdata}}<br>%{{x:.4g}} {unit}<extra></extra>",
        )
    fig.update_layout(
        barmode="overlay",
        showlegend=True,
        legend=legend(fig.layout.height),
    )
    lanes = [f"rank {r}" for r in ranks]
    axes.downwards(fig, lanes, categoryorder="array", categoryarray=lanes, showgrid=False)
    fig.update_xaxes(title_text=f"time ({unit})", rangemode="tozero")
    return fig
