"""Memory over time on one axis: what torch's allocator handed out and holds, what NVML sees, and what was
predicted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from fusescope.charts import axes, numbers, template
from fusescope.charts.colours import SERIES
from fusescope.charts.escape import plain

_COLOURS = {"allocated": SERIES[1], "reserved": SERIES[5], "NVML": "#0072B2", "process": "#7D8590"}
_GIB = 1 << 30


def lines(
    series: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    predicted: Mapping[str, float],
    subtitle: str = "",
    theme: str = "light",
) -> go.Figure:
    """series: name → (seconds since the run's first sample, bytes); predicted: part → bytes, stacked as
    dashed levels from below."""
    if not any(len(x) for x, _ in series.values()) and not predicted:
        return template.empty(
            "The profile holds no memory figures: collect it with memory, or import a memory snapshot.", theme
        )
    c = template.THEMES[theme]
    most = max([0, *(max(v, default=0) for _, v in series.values()), sum(predicted.values())])
    unit, divisor = (
        ("GiB", _GIB) if most >= _GIB else ("MiB", 1 << 20) if most >= 1 << 20 else ("KiB", 1 << 10)
    )
    fig = template.figure("Memory over time", subtitle, theme, height=430)
    end = max([1e-6, *(x[-1] for x, _ in series.values() if len(x))])
    for name, (x, values) in series.items():
        if not len(x):
            continue
        colour = next((v for k, v in _COLOURS.items() if name.startswith(k)), "#5B6FB5")
        fig.add_scatter(
            x=list(x),
            y=[v / divisor for v in values],
            mode="lines",
            name=plain(name),
            line=dict(
                color=colour, width=2, shape="hv", dash="dot" if name.endswith("(sampled)") else "solid"
            ),
            hovertemplate=f"{plain(name)}: %{{y:.4g}} {unit}<br>%{{x:.4g}} s<extra></extra>",
        )
    level, parts = 0.0, ""
    names = list(predicted)
    for n, part in enumerate(names):
        level += predicted[part]
        parts += (" + " if parts else "") + plain(part)
        fig.add_scatter(
            x=[0, end],
            y=[level / divisor] * 2,
            mode="lines",
            line=dict(color=c["ink"], width=1.4, dash="dash"),
            hoverinfo="skip",
            showlegend=False,
        )
        if n + 1 < len(names) and predicted[names[n + 1]] < 0.06 * most:
            continue  # the next line is too near for two labels
        fig.add_annotation(
            x=0,
            xref="paper",
            xanchor="left",
            y=level / divisor,
            yanchor="bottom",
            showarrow=False,
            bgcolor=c["paper"],
            text=f"predicted {parts}: {numbers.size(level)}",
            font=dict(size=11.5, color=c["muted"]),
        )
    fig.update_yaxes(title_text=unit, rangemode="tozero")
    axes.left(fig, ["1,000"])
    fig.update_xaxes(title_text="time since the first sample (s)")
    fig.update_layout(showlegend=True, legend=dict(orientation="h", y=-0.2))
    return fig
