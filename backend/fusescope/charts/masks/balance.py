"""Live keys of each query, or live tiles of each tile row, along the sequence."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import plotly.graph_objects as go

from fusescope.charts import axes, numbers, template
from fusescope.charts.colours import SERIES

_POINTS = 600  # more than a chart of half a page has pixels


def along(
    counts: Mapping[str, np.ndarray], what: str, step: int, subtitle: str = "", theme: str = "light"
) -> go.Figure:
    """Per mask a curve of ``counts`` (one per row of ``step`` queries) with its mean; long curves show the
    maximum of each piece."""
    fig = template.figure(f"{what[:1].upper()}{what[1:]}", subtitle, theme, 320)
    for (name, values), colour in zip(counts.items(), SERIES):
        pieces = np.linspace(0, len(values), min(len(values), _POINTS) + 1).astype(int)
        tops = np.maximum.reduceat(values, pieces[:-1])
        fig.add_scatter(
            x=pieces[:-1] * step,
            y=tops,
            mode="lines",
            line=dict(color=colour, width=1.8, shape="hv"),
            name=name,
            hovertemplate=f"{name}<br>from query %{{x}}: %{{y}}<extra></extra>",
        )
        mean = float(values.mean())
        fig.add_hline(y=mean, line=dict(color=colour, width=1.2, dash="dash"))
        axes.at_right(
            fig, f"<span style='color:{colour}'>┅</span> mean {numbers.three(mean)}", mean, align="left"
        )
    fig.update_xaxes(title_text="query")
    fig.update_yaxes(rangemode="tozero", title_text=what)
    fig.update_layout(margin=dict(r=110))
    axes.room(fig, [f"{max(int(values.max()) for values in counts.values()):,}"])
    return fig
