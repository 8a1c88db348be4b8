"""How much of a mask a kernel works on that skips tiles, by the side of the tile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from fusescope.charts import axes, template
from fusescope.charts.colours import SERIES


def executed(
    shares: Mapping[str, Sequence[float]],
    densities: Mapping[str, float],
    sides: Sequence[int],
    subtitle: str = "",
    theme: str = "light",
) -> go.Figure:
    """Per mask a curve: share of elements in live tiles over the tile's side; the dashed line is the share
    that is kept."""
    fig = template.figure(
        "Computed share by tile size",
        f"{subtitle} · dashed: elements kept (lower bound)",
        theme,
        340,
    )
    for (name, values), colour in zip(shares.items(), SERIES):
        fig.add_scatter(
            x=list(sides),
            y=[100 * v for v in values],
            mode="lines+markers",
            name=name,
            line=dict(color=colour, width=2.6),
            marker=dict(size=8),
            hovertemplate=f"{name}<br>tiles of %{{x}}: %{{y:.3g}} % of the elements<extra></extra>",
        )
        fig.add_hline(y=100 * densities[name], line=dict(color=colour, width=1.3, dash="dash"))
    fig.update_xaxes(
        type="log",
        tickvals=list(sides),
        ticktext=[str(s) for s in sides],
        tickangle=0,
        title_text="tile size (log)",
    )
    fig.update_yaxes(rangemode="tozero", title_text="elements in live tiles (%)")
    fig.update_layout(showlegend=len(shares) > 1, legend=dict(orientation="h", y=-0.25))
    axes.room(fig, ["100"])
    return fig
