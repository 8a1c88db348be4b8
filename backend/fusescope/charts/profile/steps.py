"""What each step of a profile consists of on the device: compute, communication, copies, and idle time by its
cause, each instant once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from fusescope.charts import axes, numbers, template
from fusescope.charts.colours import SERIES

COLOURS = {
    "compute": SERIES[0],
    "overlapped": SERIES[4],
    "exposed": SERIES[2],
    "memory": SERIES[3],
    "host": SERIES[1],
    "synchronised": SERIES[5],
    "launched": "#8A9199",
    "profiler": "#6B7C93",
    "unknown": "#B0B7BF",
    "host time": "#7D8590",
}
WORDS = {
    "compute": "kernels",
    "overlapped": "compute and communication at once",
    "exposed": "communication alone",
    "memory": "memcpy/memset alone",
    "host": "idle: host had not launched",
    "synchronised": "idle: host synchronised",
    "launched": "idle: launch latency or dependency",
    "profiler": "idle: profiler overhead",
    "unknown": "idle: unknown cause",
    "host time": "host time",
}
"""Part → what it is called; causes are those of profiling.gaps."""
_TALK = ("overlapped", "exposed")
_BUSY = ("compute", "overlapped", "exposed", "memory")
_CAUSES = ("host", "synchronised", "launched", "profiler", "unknown")
MOST = 40


def rows(
    steps: Sequence[Mapping], parts: Mapping[int | None, Mapping[str, int]], hidden_below: float = 0.005
) -> list[dict]:
    """Rows of the table steps with their parts of the device's time (device_time.DeviceTime.steps) in place
    of sums over concurrent kernels; last, with step None, what no step launched, where that is a share of
    ``hidden_below`` of the time or more."""
    own = {k for part in parts.values() for k in part} | {"kernel_ns", "copy_ns"}
    nothing = dict.fromkeys(next(iter(parts.values()), ()), 0)
    found = [
        {k: v for k, v in s.items() if k not in own} | dict(parts.get(s["step"], nothing)) for s in steps
    ]
    other, whole = sum(parts.get(None, nothing).values()), sum(sum(p.values()) for p in parts.values())
    if steps and other and other >= hidden_below * whole:
        found.append({"step": None, **parts[None]})
    return found


def bars(steps: Sequence[Mapping], subtitle: str = "", theme: str = "light") -> go.Figure:
    """One bar per step (of ``rows``); of more than MOST the first ones, which the subtitle says."""
    if not steps:
        return template.empty("The profile has no steps (torch.profiler's schedule marks them).", theme)
    shown = list(steps[:MOST])
    parts = {part: [s.get(f"{part}_ns", 0) for s in shown] for part in _BUSY}
    parts |= {cause: [s.get(f"idle_{cause}_ns", 0) for s in shown] for cause in _CAUSES}
    title = "Steps on the device"
    if not any(map(any, parts.values())):  # a trace without a GPU
        title, parts = "Steps on the host", {"host time": [s.get("dur_ns", 0) for s in shown]}
    more = f"the first {MOST} of {len(steps)} steps" if len(steps) > MOST else ""
    room = 190 + 20 * max(0, sum(map(any, parts.values())) - 3)  # the legend takes lines below the axis
    fig = template.figure(title, template.join(subtitle, more), theme, height=room + 26 * len(shown))
    unit, factor = numbers.time_unit([sum(v[i] for v in parts.values()) / 1e6 for i in range(len(shown))])
    labels = ["no step" if s["step"] is None else f"step {s['step']}" for s in shown]
    words = WORDS | ({"compute": "compute alone"} if any(map(any, (parts.get(p, ()) for p in _TALK))) else {})
    for name, values in parts.items():
        if any(values):
            fig.add_bar(
                orientation="h",
                y=labels,
                x=[v / 1e6 * factor for v in values],
                name=words[name],
                marker=dict(color=COLOURS[name]),
                hovertemplate=f"%{{y}}<br>{words[name]}: %{{x:.4g}} {unit}<extra></extra>",
            )
    fig.update_layout(
        barmode="stack",
        showlegend=True,
        legend=dict(orientation="h", y=-0.22 - 1.2 / (len(shown) + 2), traceorder="normal"),
    )
    axes.downwards(fig, labels)
    fig.update_xaxes(ticksuffix=f" {unit}", rangemode="tozero")  # a title would lie under the legend
    return fig
