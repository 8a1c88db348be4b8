"""Time by rank: compute, communication hidden and exposed, copies and idle, one bar per rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from fusescope.charts import axes, numbers, template
from fusescope.charts.ranks.words import PARTS, legend

MOST = 64
"""Bars; of more ranks those are drawn that hold the others up most."""


def bars(rows: Sequence[Mapping], subtitle: str = "", theme: str = "light") -> go.Figure:
    """rows: of the table rank_time."""
    if not any(r["span_ns"] for r in rows):
        return template.empty("No rank has an activity that lasts.", theme)
    shown = sorted(sorted(rows, key=lambda r: -r["held_up_ns"])[:MOST], key=lambda r: r["rank"])
    more = f"the {MOST} of {len(rows)} ranks that hold the others up most" if len(rows) > MOST else ""
    fig = template.figure("Time by rank", template.join(subtitle, more), theme, height=230 + 24 * len(shown))
    unit, factor = numbers.time_unit([r["span_ns"] / 1e6 for r in shown])
    labels = [f"rank {r['rank']}" for r in shown]
    for part, (name, colour) in PARTS.items():
        values = [r[part] / 1e6 * factor for r in shown]
        if any(values):
            shares = [numbers.percent(r[part] / r["span_ns"] if r["span_ns"] else None) for r in shown]
            fig.add_bar(
                orientation="h",
                y=labels,
                x=values,
                name=name,
                customdata=shares,
                marker=dict(color=colour),
                hovertemplate=f"%{{y}}<br>{name}: %{{x:.4g}} {unit} (%{{customdata}})<extra></extra>",
            )
    fig.update_layout(
        barmode="stack",
        showlegend=True,
        legend=legend(fig.layout.height),
    )
    axes.downwards(fig, labels)
    fig.update_xaxes(title_text=f"time ({unit})", rangemode="tozero")
    return fig
