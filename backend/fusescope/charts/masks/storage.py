"""What a mask's pattern takes to store, format by format."""

from __future__ import annotations

import math
from collections.abc import Mapping

import plotly.graph_objects as go

from fusescope.charts import axes, numbers, template
from fusescope.charts.colours import SERIES


def bars(bytes_of: Mapping[str, Mapping[str, int]], subtitle: str = "", theme: str = "light") -> go.Figure:
    """{mask: {format: bytes}} as bars on a logarithmic axis, one group a format."""
    fig = template.figure("Storage of the pattern", subtitle, theme, 340)
    for (name, sizes), colour in zip(bytes_of.items(), SERIES):
        fig.add_bar(
            x=list(sizes),
            y=list(sizes.values()),
            name=name,
            marker=dict(color=colour),
            textposition="outside",
            cliponaxis=False,
            text=[numbers.size(b) if len(bytes_of) == 1 else "" for b in sizes.values()],
            hovertemplate=f"{name}<br>%{{x}}: %{{y:,}} bytes<extra></extra>",
        )
    everything = [b for sizes in bytes_of.values() for b in sizes.values()]
    low, high = max(1, min(everything)), max(everything)
    fig.update_xaxes(tickangle=0)
    steps = [2**e for e in range(0, 50, 5 if high / low > 1 << 14 else 2) if low / 8 <= 2**e <= high * 4]
    fig.update_yaxes(
        type="log",
        range=[math.log10(low / 2), math.log10(high * 3)],
        tickvals=steps,
        ticktext=[numbers.size(s) for s in steps],
        title_text="bytes (log)",
    )
    axes.left(fig, fig.layout.yaxis.ticktext)
    fig.update_layout(
        barmode="group", bargap=0.3, showlegend=len(bytes_of) > 1, legend=dict(orientation="h", y=-0.2)
    )
    return fig
