"""The large picture of a mask or of a part of it: share of kept elements per pixel, single elements where
they fit."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import plotly.graph_objects as go

from fusescope.charts import axes, numbers, template

PIXELS = 384
"""Most pixels a side; of a larger region each pixel is the mean over what it covers."""
KEPT = "#0072B2"
_FAINT = {"light": "#A9CBE4", "dark": "#1F4E73"}
_HANDLES = 24  # per side


def picture(
    shares: np.ndarray,
    rows: np.ndarray,
    columns: np.ndarray,
    title: str,
    theme: str = "light",
    side: int = 440,
) -> go.Figure:
    """``shares`` of kept elements per pixel; pixel (i, j) covers queries rows[i] … rows[i+1]−1 and keys
    columns[j] … columns[j+1]−1.

    A pixel with a single kept element differs visibly from an empty one. A box drawn on the picture is a
    selection (two numbers an axis), by which a page can zoom in.
    """
    c = template.THEMES[theme]
    top, bottom, left, right = int(rows[0]), int(rows[-1]), int(columns[0]), int(columns[-1])
    high, wide = (bottom - top) / len(shares), (right - left) / shares.shape[1]
    each = (
        "a pixel is one element"
        if high == wide == 1
        else f"a pixel is {numbers.three(high)} × {numbers.three(wide)} elements"
    )
    fig = template.figure(
        title, f"queries {top:,}–{bottom - 1:,}, keys {left:,}–{right - 1:,} · {each}", theme, side + 110
    )
    percent = np.where(shares > 0, np.maximum(np.rint(shares * 100), 1), 0).astype(np.uint8)
    fig.add_heatmap(
        # Pixels of one size, though the true ones differ by an element: the browser draws those as one image,
        # any others one by one.
        z=percent,
        x0=left + wide / 2 - 0.5,
        dx=wide,
        y0=top + high / 2 - 0.5,
        dy=high,
        zmin=0,
        zmax=100,
        showscale=False,
        colorscale=[[0, c["grid"]], [0.0099, c["grid"]], [0.01, _FAINT[theme]], [1, KEPT]],
        hovertemplate="query %{y:.0f}, key %{x:.0f}<br>%{z} % kept<extra></extra>",
    )
    hx, hy = np.meshgrid(np.linspace(left, right - 1, _HANDLES), np.linspace(top, bottom - 1, _HANDLES))
    axes.handles(fig, hx.ravel(), hy.ravel())
    fig.update_xaxes(range=[left - 0.5, right - 0.5], title_text="key", showgrid=False)
    fig.update_yaxes(range=[bottom - 0.5, top - 0.5], title_text="query", showgrid=False)
    fig.update_layout(dragmode="select", selectdirection="any")
    axes.room(fig, [f"{max(bottom, right):,}"])
    return fig


def edges(first: int, last: int) -> np.ndarray:
    """The edges of at most PIXELS pixels over first … last−1, nearly even, each of at least one element."""
    return np.linspace(first, last, min(last - first, PIXELS) + 1).astype(int)


def shrink(rows_of: Callable[[int, int], np.ndarray], rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Shares (pixels, pixels) of kept elements; ``rows_of(first, last)`` gives these rows as bool (rows, all
    columns)."""
    out = np.empty((len(rows) - 1, len(columns) - 1), np.float32)
    for i, (first, last) in enumerate(itertools.pairwise(rows)):
        per_key = rows_of(int(first), int(last))[:, columns[0] : columns[-1]].sum(axis=0, dtype=np.int32)
        out[i] = np.add.reduceat(per_key, columns[:-1] - columns[0]) / ((last - first) * np.diff(columns))
    return out
