"""Time of each collective by size: measured points and the fitted latency and bandwidth as lines."""

from __future__ import annotations

from collections.abc import Mapping

import plotly.graph_objects as go

from fusescope.analysis.scaling.links import COLLECTIVES, of_json
from fusescope.charts import axes, numbers, template
from fusescope.charts.colours import SERIES


def by_size(found: Mapping, subtitle: str = "", theme: str = "light") -> go.Figure:
    """``found``: the links of a run's environment; both axes logarithmic."""
    points = [p for p in found.get("points") or () if p["ms"] > 0]
    if not points:
        return template.empty("The collectives were not measured.", theme)
    fitted = of_json(found["links"])
    fig = template.figure("Collectives by size", subtitle, theme, height=420)
    for ink, collective in zip(SERIES, COLLECTIVES, strict=False):
        name = collective.replace("_", "-")
        for ranks in sorted({p["ranks"] for p in points if p["collective"] == collective}):
            own = [p for p in points if (p["collective"], p["ranks"]) == (collective, ranks)]
            label = f"{name}, {ranks} ranks"
            fig.add_scatter(
                x=[p["bytes"] for p in own],
                y=[p["ms"] for p in own],
                mode="markers",
                name=label,
                marker=dict(color=ink, size=8, symbol="circle" if ranks == 2 else "diamond"),
                hovertext=[f"{label}<br>{numbers.size(p['bytes'])}: {numbers.time(p['ms'])}" for p in own],
                hoverinfo="text",
            )
            if link := fitted.get(collective):
                fig.add_scatter(
                    x=[p["bytes"] for p in own],
                    y=[link.seconds(ranks, p["bytes"]) * 1e3 for p in own],
                    mode="lines",
                    showlegend=False,
                    line=dict(color=ink, dash="dash", width=1.4),
                    hoverinfo="skip",
                )
    sizes = sorted({p["bytes"] for p in points})[::2]  # as many as fit on a phone
    fig.update_xaxes(type="log", tickvals=sizes, ticktext=[numbers.size(s) for s in sizes])
    ms = [p["ms"] for p in points]
    fig.update_yaxes(**axes.log(min(ms) * 0.7, max(ms) * 1.4), title_text="time (ms), log")
    fig.update_layout(
        showlegend=True,
        legend=dict(orientation="h", yanchor="top", y=-0.12, x=0, font=dict(size=12)),
        margin=dict(b=100),
    )
    axes.left(fig, fig.layout.yaxis.ticktext)
    return fig
