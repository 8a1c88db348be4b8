"""Time and efficiency by the number of devices: measured points with intervals, predictions dashed, the
fitted law dotted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from fusescope.analysis.scaling.measured import Series
from fusescope.charts import axes, numbers, template
from fusescope.charts.colours import SERIES

SCHEMES = {"tp": "tensor parallel", "pp": "pipeline", "dp": "data parallel"}
_SYMBOLS = {"sdpa": "circle", "fusescope": "diamond", "fused": "square"}
Predicted = Mapping[tuple[str, str], Sequence[tuple[int, float, bool]]]
"""(attention, scheme) → (devices, ms, host-bound: ms is a lower bound), one device first."""


def time(
    measured: Sequence[Series], predicted: Predicted, subtitle: str = "", theme: str = "light"
) -> go.Figure:
    """Time per call over the devices, both logarithmic; series of one scaling."""
    values = [r.ms for s in measured for _, r in s.points]
    values += [ms for p in predicted.values() for _, ms, _ in p]
    if not values:
        return template.empty("No time on more than one device, and nothing to predict one from.", theme)
    unit, factor = numbers.time_unit(values)
    title = "Time by devices" + (", batch in proportion" if _weak(measured) else "")
    fig = template.figure(title, subtitle, theme, height=460)
    for about, points in predicted.items():
        _predicted(fig, about, [(n, ms * factor, bound) for n, ms, bound in points], unit, "≥")
    for s in measured:
        x, rows = [n for n, _ in s.points], [r.time for _, r in s.points]
        fig.add_scatter(
            x=x,
            y=[t.median * factor for t in rows],
            error_y=axes.interval(
                [t.median * factor for t in rows],
                [t.low * factor for t in rows],
                [t.high * factor for t in rows],
                colour(s.scheme),
            ),
            hovertext=[
                f"<b>{s.title}</b><br>devices: {n}<br>{numbers.three(t.median * factor)} {unit}"
                f"<br>95 %: {numbers.three(t.low * factor)} – {numbers.three(t.high * factor)} {unit}"
                for n, t in zip(x, rows, strict=True)
            ],
            **_look(s),
        )
    _axes(fig, measured, predicted, theme)
    low, high = min(values) * factor, max(values) * factor
    fig.update_yaxes(**axes.log(low * 0.8, high * 1.25), title_text=f"time per call ({unit}), log")
    axes.left(fig, fig.layout.yaxis.ticktext)
    return fig


def efficiency(
    measured: Sequence[Series], predicted: Predicted, subtitle: str = "", theme: str = "light"
) -> go.Figure:
    """Speed-up over one device divided by the devices, and the fitted law dotted; series of one scaling."""
    if not measured and not predicted:
        return template.empty("No time on more than one device, and nothing to predict one from.", theme)
    title = "Efficiency by devices" + (", batch in proportion" if _weak(measured) else "")
    fig = template.figure(title, subtitle, theme, height=460)
    for about, points in predicted.items():
        single = points[0][1]
        _predicted(fig, about, [(n, 100 * single / ms / n, bound) for n, ms, bound in points], "%", "≤")
    for s in measured:
        fit, shares = s.fit(), s.efficiency()
        most = max(n for n, _ in shares)
        if fit.note is None:
            law = "Gustafson" if fit.law == "gustafson" else "Amdahl"
            curve = [(n, 100 * fit.speedup(n) / n) for n in range(1, most + 1)]
            fig.add_scatter(
                x=[n for n, _ in curve],
                y=[v for _, v in curve],
                mode="lines",
                line=dict(color=colour(s.scheme), dash="dot", width=1.6),
                hoverinfo="skip",
                name=f"{law}, {s.title}",
            )
        fig.add_scatter(
            x=[n for n, _ in shares],
            y=[100 * v for _, v in shares],
            hovertext=[f"<b>{s.title}</b><br>{n} devices: {numbers.percent(v)}" for n, v in shares],
            **_look(s),
        )
    _axes(fig, measured, predicted, theme)
    fig.update_yaxes(title_text="efficiency (%)", rangemode="tozero")
    axes.left(fig, ["100"])
    return fig


def colour(scheme: str) -> str:
    """The colour of a scheme, "tp", "pp", "dp" or several: of no implementation."""
    known = list(SCHEMES)
    return SERIES[known.index(scheme) if scheme in known else 3 + len(scheme) % 4]


def _weak(measured: Sequence[Series]) -> bool:
    return any(s.scaling == "weak" for s in measured)


def _look(s: Series) -> dict:
    ink = colour(s.scheme)
    return dict(
        mode="lines+markers",
        name=s.title,
        line=dict(color=ink, width=2.2),
        marker=dict(size=9, symbol=_SYMBOLS.get(s.attention, "circle")),
        hoverinfo="text",
    )


def _predicted(
    fig: go.Figure, about: tuple[str, str], points: Sequence[tuple[int, float, bool]], unit: str, sign: str
) -> None:
    """A dashed line in colour and symbol of what is measured; ``sign`` before what is a bound."""
    attention, scheme = about
    name = f"{attention}, {SCHEMES.get(scheme, scheme)}, predicted"
    fig.add_scatter(
        x=[n for n, *_ in points],
        y=[v for _, v, _ in points],
        mode="lines+markers",
        name=name,
        showlegend=False,
        line=dict(color=colour(scheme), dash="dash", width=1.4),
        marker=dict(size=6, symbol=_SYMBOLS.get(attention, "circle") + "-open"),
        hovertext=[
            f"{name}<br>{n} devices: {f'{sign} ' if bound else ''}{numbers.three(v)} {unit}"
            + (", host-bound" if bound else "")
            for n, v, bound in points
        ],
        hoverinfo="text",
    )


def _axes(fig: go.Figure, measured: Sequence[Series], predicted: Predicted, theme: str) -> None:
    counts = [n for s in measured for n, _ in s.points] + [n for p in predicted.values() for n, *_ in p]
    if predicted:
        ink = template.THEMES[theme]["muted"]
        fig.add_scatter(x=[None], y=[None], mode="lines", name="predicted", line=dict(color=ink, dash="dash"))
    fig.update_xaxes(**axes.ticks_at(counts))  # the title names it: on a phone the legend takes its place
    fig.update_layout(
        showlegend=True,
        legend=dict(orientation="h", yanchor="top", y=-0.12, x=0, font=dict(size=12)),
        margin=dict(b=114),
    )
