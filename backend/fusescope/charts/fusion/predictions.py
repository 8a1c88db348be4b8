"""How accurate the cost model is: predicted against measured, and which features decide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go

from fusescope.charts import axes, numbers, template
from fusescope.charts.colours import SERIES
from fusescope.charts.fusion.ranks import BITS, as_numbers

HIGH, LOW = template.FASTER, SERIES[6]


def against_measured(
    points: Sequence[Mapping], threshold_ms: float, subtitle: str = "", theme: str = "light"
) -> go.Figure:
    """``points``: {code, measured_ms, predicted_ms}, each predicted by a model that had not seen it. Those at
    or below the threshold are High (1), the others Low (0)."""
    if not points:
        return template.empty("No held-out schemes.", theme)
    c = template.THEMES[theme]
    every = [p[k] for p in points for k in ("measured_ms", "predicted_ms")]
    unit, factor = numbers.time_unit(every)
    fig = template.figure("Predicted vs measured (held out)", subtitle, theme, height=430)
    low, high = min(every) * factor * 0.98, max(every) * factor * 1.02
    fig.add_scatter(
        x=[low, high],
        y=[low, high],
        mode="lines",
        line=dict(color=c["line"], width=1.4),
        hoverinfo="skip",
        showlegend=False,
    )
    for performance, colour, symbol in (("High (1)", HIGH, "circle"), ("Low (0)", LOW, "square-open")):
        rows = [p for p in points if (p["measured_ms"] <= threshold_ms) == (performance[0] == "H")]
        add = fig.add_scattergl if len(points) > 2000 else fig.add_scatter
        add(
            x=np.array([p["measured_ms"] for p in rows]) * factor,
            y=np.array([p["predicted_ms"] for p in rows]) * factor,
            mode="markers",
            name=performance,
            marker=dict(color=colour, symbol=symbol, size=6, opacity=0.75),
            customdata=as_numbers(p["code"] for p in rows),
            hovertemplate=(
                f"<b>{BITS}</b><br>measured %{{x:.3g}} {unit}, predicted %{{y:.3g}} {unit}<extra></extra>"
            ),
        )
    threshold = dict(color=c["muted"], width=1, dash="dot")
    fig.add_vline(x=threshold_ms * factor, line=threshold)
    fig.add_hline(y=threshold_ms * factor, line=threshold)
    fig.update_xaxes(title_text=f"measured ({unit}), log", **axes.log(low, high))
    fig.update_yaxes(title_text=f"predicted ({unit}), log", **axes.log(low, high))
    axes.left(fig, fig.layout.yaxis.ticktext)
    fig.update_layout(showlegend=True, legend=dict(orientation="h", y=-0.2))
    return fig


def importance(
    rows: Sequence[Mapping], subtitle: str = "", theme: str = "light", most: int = 15
) -> go.Figure:
    """``rows``: {feature, share} of the total gain of the trees' splits; the ``most`` important ones."""
    shown = sorted(rows, key=lambda r: -r["share"])[:most]
    if not shown:
        return template.empty("The trees have no splits.", theme)
    fig = template.figure("Feature importance", subtitle, theme, height=130 + 22 * len(shown))
    fig.add_bar(
        y=[r["feature"] for r in shown],
        x=[100 * r["share"] for r in shown],
        orientation="h",
        marker_color="#0072B2",
        hovertemplate="%{y}: %{x:.3g} %<extra></extra>",
    )
    fig.update_xaxes(title_text="share of total gain (%)", rangemode="tozero")
    axes.downwards(fig, (r["feature"] for r in shown), showgrid=False, ticks="")
    return fig
