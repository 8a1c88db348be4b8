"""Theoretical occupancy as one input varies: the staircase a what-if slider walks along, with the chosen
point marked."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from fusescope.charts import axes, numbers, template
from fusescope.charts.colours import SERIES


def stairs(
    values: Sequence[int],
    shares: Sequence[float],
    chosen: int,
    name: str,
    unit: str = "",
    subtitle: str = "",
    theme: str = "light",
) -> go.Figure:
    """Occupancy (0 … 1) over the values of one input; ``chosen`` is the value of the sliders."""
    c = template.THEMES[theme]
    fig = template.figure(f"Occupancy by {name}", subtitle, theme, height=270)
    label = f"{name} ({unit})" if unit else name
    fig.add_scatter(
        x=list(values),
        y=[100 * s for s in shares],
        mode="lines",
        line=dict(color=SERIES[0], width=2.4, shape="hv"),
        hovertemplate=f"%{{x}} {unit or name}: %{{y:.3g}} %<extra></extra>",
    )
    at = min(range(len(values)), key=lambda i: abs(values[i] - chosen))
    fig.add_scatter(
        x=[values[at]],
        y=[100 * shares[at]],
        mode="markers",
        marker=dict(size=13, color=SERIES[0], line=dict(color=c["ink"], width=2)),
        hoverinfo="skip",
    )
    fig.add_annotation(
        x=values[at],
        y=100 * shares[at],
        yshift=16,
        showarrow=False,
        text=f"<b>{numbers.percent(shares[at])}</b>",
    )
    fig.update_yaxes(range=[0, 114], tickvals=[0, 25, 50, 75, 100], title_text="occupancy (%)")
    fig.update_xaxes(title_text=label)
    axes.left(fig, ["100"])
    return fig
