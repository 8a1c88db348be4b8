"""Measured speed-ups of masks against what skipping allows, 1 / density."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from fusescope.charts import axes, numbers, template
from fusescope.charts.colours import colour, marker, short


def against_density(points: pd.DataFrame, title: str, subtitle: str = "", theme: str = "light") -> go.Figure:
    """One point per record: ``density`` 0 … 1 and ``gain`` (speed-up), with ``impl``, ``label``, ``limit``
    (what can be reached) and, where some are to stand out, ``chosen``; the line is 1 / density."""
    c = template.THEMES[theme]
    if points.empty:
        return template.empty("No results.", theme)
    fig = template.figure(title, subtitle, theme, 440)
    low = max(1e-4, float(points.density.min()) * 0.8)
    x = np.geomspace(low, 1, 60)
    fig.add_scatter(
        x=100 * x,
        y=1 / x,
        mode="lines",
        line=dict(color=c["ink"], width=1.5, dash="dash"),
        hoverinfo="skip",
        showlegend=False,
    )
    stand_out = "chosen" in points and bool(points.chosen.any()) and not points.chosen.all()
    for impl, rows in points.groupby("impl", sort=False):
        fig.add_scatter(
            x=100 * rows.density,
            y=rows.gain,
            mode="markers",
            name=short(impl),
            text=rows.label,
            customdata=[numbers.ratio(limit) for limit in rows.limit],
            marker=dict(
                size=[12 if above else 8 for above in rows.chosen] if stand_out else 9,
                color=colour(impl),
                symbol=marker(impl),
                opacity=[1.0 if above else 0.4 for above in rows.chosen] if stand_out else 0.85,
            ),
            hovertemplate="%{text}<br>%{x:.3g} % kept, %{y:.3g}× of at most %{customdata}<extra>"
            + short(impl)
            + "</extra>",
        )
    where = float(np.sqrt(low))
    fig.add_annotation(
        x=np.log10(100 * where),
        y=np.log10(1 / where),
        text="ideal: 1 / density",
        showarrow=False,
        yshift=14,
        xshift=50,
        font=dict(size=12, color=c["muted"]),
    )
    gains = [float(g) for g in points.gain]
    fig.update_xaxes(
        **axes.log(100 * low, 100) | {"range": [np.log10(90 * low), 2.05]},
        title_text="elements kept (%, log)",
    )
    fig.update_yaxes(**axes.ratio([*gains, 1 / low]), title_text="speed-up (log)")
    axes.left(fig, fig.layout.yaxis.ticktext)
    fig.add_hline(y=1, line=dict(color=c["line"], width=1))
    fig.update_layout(showlegend=True, legend=dict(orientation="h", y=-0.2))
    return fig


def summary(points: pd.DataFrame) -> str:
    """How much of what can be reached (``share``) was: the least, the median and the most of all points."""
    share = points.share
    least, middle, most = (numbers.percent(float(v)) for v in (share.min(), share.median(), share.max()))
    return f"{least} to {most} of the limit, median {middle}"
