"""The large picture of a mask or of a part of it: share of kept elements a pixel, single elements where they fit."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from backend.charts import numbers, template

PIXELS = 384
"""Most pixels a side; of a larger region each pixel is the mean over what it covers."""
KEPT = "#0072B2"
_FAINT = {"light": "#A9CBE4", "dark": "#1F4E73"}
_HANDLES = 24  # invisible points a side, so that a box can be drawn: plotly selects points, not pixels


def picture(
    shares: np.ndarray, region: tuple[int, int, int, int], title: str, theme: str = "light", side: int = 460
) -> go.Figure:
    """``shares`` (rows, columns) of kept elements in pixels that divide ``region`` = (first query, last, first key, last) evenly.

    A pixel with a single kept element differs visibly from an empty one. Drawing a box selects a region to look at.
    """
    c = template.THEMES[theme]
    top, bottom, left, right = region
    rows, columns = shares.shape
    exact = rows == bottom - top and columns == right - left
    subtitle = "every pixel is one element" if exact else (
        f"a pixel is {numbers.three((bottom - top) / rows)} × {numbers.three((right - left) / columns)} elements"
    )  # fmt: skip
    fig = template.figure(
        title, f"queries {top:,} to {bottom - 1:,}, keys {left:,} to {right - 1:,} · {subtitle}", theme, side + 90
    )
    percent = np.where(shares > 0, np.maximum(np.rint(shares * 100), 1), 0).astype(np.uint8)
    x, y = _middles(left, right, columns), _middles(top, bottom, rows)
    fig.add_heatmap(
        z=percent, x=x, y=y, zmin=0, zmax=100, showscale=False,
        colorscale=[[0, c["grid"]], [0.0099, c["grid"]], [0.01, _FAINT[theme]], [1, KEPT]],
        hovertemplate="query %{y:.0f}, key %{x:.0f}<br>%{z} % kept<extra></extra>",
    )  # fmt: skip
    hx, hy = np.meshgrid(_middles(left, right, min(_HANDLES, right - left)), _middles(top, bottom, min(_HANDLES, bottom - top)))
    fig.add_scatter(
        x=hx.ravel(), y=hy.ravel(), mode="markers", marker=dict(size=2, opacity=0), hoverinfo="skip",
        selected=dict(marker=dict(opacity=0)), unselected=dict(marker=dict(opacity=0)),
    )  # fmt: skip
    fig.update_xaxes(range=[left - 0.5, right - 0.5], side="bottom", title_text="key", showgrid=False)
    fig.update_yaxes(range=[bottom - 0.5, top - 0.5], title_text="query", showgrid=False)
    fig.update_layout(dragmode="select", selectdirection="any")
    return fig


def _middles(first: int, last: int, count: int) -> np.ndarray:
    """Middles of ``count`` equal parts of the elements first … last−1, whose own middles are whole numbers."""
    return (first - 0.5 + (np.arange(count) + 0.5) * (last - first) / count).astype(np.float32)
