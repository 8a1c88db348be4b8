"""The picture of a mask: share of kept keys per pixel, queries down, keys across."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import plotly.graph_objects as go

from fusescope.charts import template

PIXELS = 64
"""Side of a thumbnail in pixels; a pixel is the mean over the cells it covers."""


def shrink(keep: np.ndarray, pixels: int = PIXELS) -> np.ndarray:
    """A boolean (rows, columns) array as at most pixels × pixels means, every cell counted once."""
    rows, columns = keep.shape
    r = np.linspace(0, rows, min(rows, pixels) + 1).astype(int)
    k = np.linspace(0, columns, min(columns, pixels) + 1).astype(int)
    sums = np.add.reduceat(np.add.reduceat(keep.astype(np.float32), r[:-1], axis=0), k[:-1], axis=1)
    return sums / (np.diff(r)[:, None] * np.diff(k)[None, :])


def of_rows(rows: Iterable[np.ndarray], pixels: int = PIXELS) -> tuple[np.ndarray, float]:
    """(``shrink`` of all rows together, the share of their cells that are kept). rows: boolean (1, columns),
    one at a time: a million columns of some hundred rows as numbers take gigabytes."""
    shares, kept = zip(*((shrink(row, pixels), row.mean()) for row in rows), strict=True)
    return shrink(np.concatenate(shares), pixels), float(np.mean(kept))


def thumbnail(
    shares: np.ndarray, seq_q: int, seq_k: int, density: float, theme: str = "light", side: int = 104
) -> go.Figure:
    """A small square picture; darker = more keys of that pixel kept. ``shares`` as ``shrink`` gives them."""
    c = template.THEMES[theme]
    fig = template.figure("", "", theme, height=side + 26)
    rows, columns = shares.shape
    fig.add_heatmap(
        z=shares,
        zmin=0,
        zmax=1,
        showscale=False,
        colorscale=[[0, c["grid"]], [1, "#0072B2"]],
        x=(np.arange(columns) + 0.5) * seq_k / columns,
        y=(np.arange(rows) + 0.5) * seq_q / rows,
        hovertemplate="query %{y:.0f}, key %{x:.0f}: %{z:.0%} kept<extra></extra>",
    )
    fig.update_yaxes(
        range=[seq_q, 0],
        showticklabels=False,
        ticks="",
        showgrid=False,
        title=dict(text="queries", font=dict(size=11, color=c["muted"]), standoff=2),
    )
    fig.update_xaxes(
        side="top",
        showticklabels=False,
        ticks="",
        showgrid=False,
        title=dict(text=f"{100 * density:.3g} % kept", font=dict(size=11, color=c["muted"]), standoff=2),
    )
    fig.update_layout(margin=dict(l=18, r=2, t=22, b=2))
    return fig
