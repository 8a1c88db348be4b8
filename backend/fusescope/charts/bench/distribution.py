"""Raw samples of one case: one dot per sample, warm and cold, so that two modes show as two humps."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from fusescope.charts import axes, captions, numbers, template
from fusescope.charts.colours import colour, short

_MOST_DOTS = 400
"""Dots drawn per row; more are indistinguishable and slow. The histogram uses all samples."""
_ROW = 62  # pixels a row takes with the line above it


def strips(
    samples: list[dict], modes: tuple[str, ...], subtitle: str = "", theme: str = "light"
) -> go.Figure:
    """One row per implementation and mode. ``samples``: lines of samples.jsonl of one case (impl, mode,
    ms)."""
    rows = [s for s in samples if s["mode"] in modes and s["ms"]]
    if not rows:
        return template.empty("No raw samples of this case.", theme)
    c = template.THEMES[theme]
    rows.sort(key=lambda s: (float(np.median(s["ms"])), s["mode"]), reverse=True)
    unit, factor = numbers.time_unit(float(np.median(s["ms"])) for s in rows)
    fig = template.figure("All samples", subtitle, theme, height=122 + _ROW * len(rows))
    number = _processes(rows)
    named = {}
    for y, row in enumerate(rows):
        values = np.asarray(row["ms"], float) * factor
        cold = row["mode"].endswith("cold")
        outline = _outline(values, y)
        fig.add_scatter(
            x=outline[0],
            y=outline[1],
            mode="lines",
            line=dict(color=colour(row["impl"]), width=1),
            fill="toself",
            opacity=0.5,
            hoverinfo="skip",
        )
        shown = (
            values
            if len(values) <= _MOST_DOTS
            else values[np.linspace(0, len(values) - 1, _MOST_DOTS).astype(int)]
        )
        # Height within a row is the order of sampling, so a drift shows as a slope.
        fig.add_scatter(
            x=shown,
            y=y - 0.06 - 0.3 * np.linspace(0, 1, len(shown)),
            mode="markers",
            marker=dict(
                color=colour(row["impl"]), size=5, opacity=0.65, symbol="circle-open" if cold else "circle"
            ),
            hovertemplate=f"<b>{short(row['impl'])}</b> {captions.mode(row['mode'])}<br>%{{x:.4g}} {unit}, "
            f"n = {len(values)}<extra></extra>",
        )
        middle = float(np.median(values))
        fig.add_scatter(
            x=[middle, middle],
            y=[y - 0.36, y + 0.36],
            mode="lines",
            line=dict(color=c["ink"], width=1.6),
            hoverinfo="skip",
        )
        name = f"{short(row['impl'])} {'cold' if cold else 'warm'}{number[id(row)]}"
        named[y] = name, f"{numbers.three(middle)} {unit}"
    axes.row_labels(fig, named, round(0.52 * _ROW), theme)
    fig.update_yaxes(showticklabels=False, range=[-0.45, len(rows) - 0.35], showgrid=False, ticks="")
    fig.update_xaxes(title_text=f"time per call ({unit}), log", type="log")
    everything = np.concatenate([np.asarray(s["ms"], float) * factor for s in rows])
    fig.update_xaxes(**axes.log(float(everything.min()), float(everything.max())))
    return fig


def _processes(rows: list[dict]) -> dict[int, str]:
    """ " #2" for the second of several processes that sampled the same, by id of the row; "" where there is
    one."""
    same: dict[tuple, list[int]] = {}
    for row in rows:
        same.setdefault((row["impl"], row["mode"]), []).append(id(row))
    return {i: f" #{n}" if len(ids) > 1 else "" for ids in same.values() for n, i in enumerate(ids, 1)}


def _outline(values: np.ndarray, y: float) -> tuple[np.ndarray, np.ndarray]:
    """A histogram over the logarithm as a closed outline above the row's base line, 0.36 high at its peak."""
    logs = np.log(values)
    spread = max(logs.max() - logs.min(), 1e-3)
    counts, edges = np.histogram(
        logs,
        bins=min(48, max(8, int(np.sqrt(len(values)) * 2))),
        range=(logs.min() - spread * 0.02, logs.max() + spread * 0.02),
    )
    heights = y + 0.36 * counts / counts.max()
    x = np.exp(np.repeat(edges, 2))
    return x, np.concatenate([[y], np.repeat(heights, 2), [y]])
