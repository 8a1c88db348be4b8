"""What each step of a profile consists of on the device: kernels, copies, and idle time by its cause."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from fusescope.charts import axes, numbers, template
from fusescope.charts.colours import SERIES

COLOURS = {
    "kernels": SERIES[0],
    "copies": SERIES[2],
    "host": SERIES[1],
    "synchronised": SERIES[5],
    "launched": "#8A9199",
    "profiler": "#6B7C93",
    "unknown": "#B0B7BF",
    "host time": "#7D8590",
}
WORDS = {
    "kernels": "kernels",
    "copies": "memcpy/memset",
    "host": "idle: host had not launched",
    "synchronised": "idle: host synchronised",
    "launched": "idle: launch latency or dependency",
    "profiler": "idle: profiler overhead",
    "unknown": "idle: unknown cause",
    "host time": "host time",
}
"""Part → what it is called; causes are those of profiling.gaps."""
CAUSES = ("host", "synchronised", "launched", "profiler", "unknown")
MOST = 40


def bars(steps: Sequence[Mapping], subtitle: str = "", theme: str = "light") -> go.Figure:
    """One bar per step (rows of the table steps); of more than MOST the first ones, which the subtitle
    says."""
    if not steps:
        return template.empty("The profile has no steps (torch.profiler's schedule marks them).", theme)
    shown = list(steps[:MOST])
    parts = {"kernels": [s["kernel_ns"] for s in shown], "copies": [s["copy_ns"] for s in shown]}
    parts |= {cause: [s.get(f"idle_{cause}_ns", 0) for s in shown] for cause in CAUSES}
    title = "Steps on the device"
    if not any(map(any, parts.values())):  # a trace without a GPU
        title, parts = "Steps on the host", {"host time": [s["dur_ns"] for s in shown]}
    more = f"the first {MOST} of {len(steps)} steps" if len(steps) > MOST else ""
    fig = template.figure(title, template.join(subtitle, more), theme, height=190 + 26 * len(shown))
    unit, factor = numbers.time_unit([sum(v[i] for v in parts.values()) / 1e6 for i in range(len(shown))])
    labels = [f"step {s['step']}" for s in shown]
    for name, values in parts.items():
        if any(values):
            fig.add_bar(
                orientation="h",
                y=labels,
                x=[v / 1e6 * factor for v in values],
                name=WORDS[name],
                marker=dict(color=COLOURS[name]),
                hovertemplate=f"%{{y}}<br>{WORDS[name]}: %{{x:.4g}} {unit}<extra></extra>",
            )
    fig.update_layout(
        barmode="stack",
        showlegend=True,
        legend=dict(orientation="h", y=-0.22 - 1.2 / (len(shown) + 2), traceorder="normal"),
    )
    axes.downwards(fig, labels)
    fig.update_xaxes(title_text=f"time ({unit})", rangemode="tozero")
    return fig
