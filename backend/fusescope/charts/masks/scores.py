"""How sparse attention probabilities are: a cell a layer and head, histograms, a head's picture, and what
skipping tiles would cost."""

from __future__ import annotations

import base64
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from fusescope.charts import numbers, template
from fusescope.charts.colours import SERIES

_SCALE = {"light": [[0, "#EEF3F7"], [1, "#0072B2"]], "dark": [[0, "#1B2530"], [1, "#56B4E9"]]}
_BLUE, _OTHER = SERIES[:2]
_DECADES = 12.0  # of models.scores: a byte is 0 for zero, else 1 … 255 for 10^-12 … 1


def cells(
    layers: Sequence[Mapping[str, Any]],
    values: Sequence[Sequence[float]],
    title: str,
    subtitle: str = "",
    theme: str = "light",
) -> go.Figure:
    """``values``: shares 0 … 1 or bits, one row per layer, one column per head. A cell that is clicked names
    its layer and head."""
    c = template.THEMES[theme]
    heads = max(map(len, values))
    fig = template.figure(title, subtitle, theme, 150 + max(26, min(40, 420 // len(values))) * len(values))
    texts = [[numbers.three(v) for v in row] for row in values]
    fig.add_heatmap(
        z=[list(row) for row in values],
        x=list(range(heads)),
        y=list(range(len(values))),
        xgap=2,
        ygap=2,
        colorscale=_SCALE[theme],
        text=texts,
        texttemplate="%{text}" if heads <= 16 else None,
        textfont=dict(size=11),
        showscale=heads > 16,
        hovertext=[
            [f"<b>{layers[i]['name']}</b>, head {h}<br>{w}" for h, w in enumerate(row)]
            for i, row in enumerate(texts)
        ],
        hoverinfo="text",
        colorbar=dict(thickness=10, outlinewidth=0, tickfont=dict(color=c["muted"])),
    )
    fig.update_xaxes(title_text="head", dtick=1 if heads <= 16 else None, showgrid=False)
    fig.update_yaxes(
        title_text="attention, in order",
        autorange="reversed",
        dtick=1 if len(values) <= 16 else None,
        showgrid=False,
    )
    return fig


def histogram(
    counts: Sequence[int],
    zeros: int,
    bins: Sequence[float],
    title: str,
    subtitle: str = "",
    theme: str = "light",
) -> go.Figure:
    """Shares of the kept probabilities by size, exact zeros at the left."""
    total = sum(counts) + zeros or 1
    middles = [(a + b) / 2 for a, b in itertools.pairwise(bins)]
    fig = template.figure(title, subtitle, theme, 330)
    hovers = [
        f"10^{a:g} to 10^{b:g}<br>{n:,} of {total:,} ({numbers.percent(n / total)})"
        for a, b, n in zip(bins, bins[1:], counts, strict=False)
    ]
    fig.add_bar(
        x=middles,
        y=[100 * n / total for n in counts],
        width=0.46,
        marker=dict(color=_BLUE),
        hovertext=hovers,
        hoverinfo="text",
    )
    zero = bins[0] - 1
    fig.add_bar(
        x=[zero],
        y=[100 * zeros / total],
        width=0.46,
        marker=dict(color=_OTHER),
        hovertext=[f"exactly zero<br>{zeros:,} of {total:,} ({numbers.percent(zeros / total)})"],
        hoverinfo="text",
    )
    ticks = [b for b in bins if float(b) == int(b) and int(b) % 2 == 0]
    fig.update_xaxes(
        tickvals=[zero, *ticks],
        ticktext=["0", *(f"10<sup>{int(t)}</sup>" for t in ticks)],
        title_text="probability (log)",
        tickangle=0,
    )
    fig.update_yaxes(title_text="kept elements (%)", rangemode="tozero")
    return fig


def picture(
    packed: str, shape: Sequence[int], side: int, title: str, subtitle: str = "", theme: str = "light"
) -> go.Figure:
    """One head's probabilities, each pixel the mean over ``side`` × ``side`` elements; ``packed`` as
    models.scores leaves it."""
    bytes_ = np.frombuffer(base64.b64decode(packed), np.uint8).reshape(shape)
    logs = np.where(bytes_ > 0, (bytes_.astype(float) - 1) / 254 * _DECADES - _DECADES, np.nan)
    top = math.ceil(float(np.nanmax(logs))) if np.isfinite(logs).any() else 0
    fig = template.figure(title, template.join(subtitle, f"a pixel is {side} × {side} elements"), theme, 430)
    at_x, at_y = (np.arange(n) * side for n in (shape[1], shape[0]))
    fig.add_heatmap(
        z=logs,
        x=at_x,
        y=at_y,
        colorscale=_SCALE[theme],
        zmin=max(-8, top - 6),
        zmax=top,
        hovertemplate="query %{y}, key %{x}<br>10^%{z:.2f}<extra></extra>",
        colorbar=dict(
            thickness=10,
            outlinewidth=0,
            title=dict(text="log₁₀ p", font=dict(size=11)),
            tickfont=dict(color=template.THEMES[theme]["muted"]),
        ),
    )
    fig.update_xaxes(title_text="key", showgrid=False, constrain="domain")
    fig.update_yaxes(title_text="query", autorange="reversed", showgrid=False, scaleanchor="x")
    return fig


def skipping(
    thresholds: Sequence[float],
    skipped: Sequence[float],
    worst: Sequence[float],
    typical: Sequence[float],
    subtitle: str = "",
    theme: str = "light",
) -> go.Figure:
    """Tiles that could be skipped at a threshold (share of live ones, all heads) and the error of the heads'
    outputs it causes."""
    c = template.THEMES[theme]
    fig = template.figure("Skippable tiles and the resulting error", subtitle, theme, 360)
    x = [f"10<sup>{round(math.log10(t))}</sup>" for t in thresholds]
    fig.add_bar(
        x=x,
        y=[100 * s for s in skipped],
        width=0.5,
        marker=dict(color=_BLUE, opacity=0.55),
        hoverinfo="text",
        hovertext=[f"{numbers.percent(s)} of the live tiles skipped" for s in skipped],
    )
    for values, word, dash in ((worst, "worst head", "solid"), (typical, "median head", "dot")):
        shown = [v if v > 0 else None for v in values]
        fig.add_scatter(
            x=x,
            y=shown,
            yaxis="y2",
            mode="lines+markers",
            line=dict(color=_OTHER, width=2.4, dash=dash),
            connectgaps=False,
            hovertext=[f"relative error of the {word}: {numbers.three(v)}" for v in values],
            hoverinfo="text",
        )
        last = max((i for i, v in enumerate(shown) if v), default=None)
        if last is not None:
            fig.add_annotation(
                x=last,
                y=math.log10(shown[last]),
                yref="y2",
                text=word,
                showarrow=False,
                xanchor="left",
                xshift=9,
                yshift=9 if dash == "solid" else -9,
                font=dict(size=12, color=c["ink"]),
            )
    drawn = [math.log10(v) for v in (*worst, *typical) if v > 0] or [0.0]
    fig.update_xaxes(
        title_text="skip threshold (largest probability in the tile)", type="category", tickangle=0
    )
    fig.update_yaxes(title_text="live tiles skipped (%)", rangemode="tozero")
    fig.update_layout(
        margin=dict(l=8, r=8, b=50),
        yaxis2=dict(
            type="log",
            overlaying="y",
            side="right",
            exponentformat="power",
            showgrid=False,
            automargin=True,
            dtick=max(1, math.ceil((max(drawn) - min(drawn)) / 5)),
            range=[min(drawn) - 0.5, max(drawn) + 0.4],
            title=dict(text="relative error of the output (log)", font=dict(size=12, color=c["muted"])),
            tickfont=dict(color=c["muted"]),
        ),
    )
    return fig
