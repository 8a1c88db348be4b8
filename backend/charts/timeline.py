"""A profile's time line: lanes with each event by itself where there are few, and how busy they were where there are many."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import plotly.graph_objects as go

from backend.charts import numbers, template
from backend.charts.plain import hue, label, plain, text_on

_HANDLES = 160  # invisible points a lane, so that a box can be drawn: plotly selects points, not bars
_ROW = 40  # pixels a lane


def lanes(views: Mapping[str, dict], zero_ns: int, subtitle: str = "", theme: str = "light") -> go.Figure:
    """views: lane → ``store.timeline.window``, all over the same span; zero_ns: what time 0 is. A box drawn is a selection."""
    c = template.THEMES[theme]
    names = list(views)
    first = views[names[0]]
    begin, end = (first[k] - zero_ns for k in ("begin_ns", "end_ns"))
    unit, factor = _unit(end - begin, max(abs(begin), abs(end)))
    each = sum(v["events"] is not None for v in views.values())
    how = (
        "every event"
        if each == len(views)
        else f"share of time busy in {len(first['bins']['busy'])} bins"
        + ("" if not each else ", single events where there are few")
    )
    fig = template.figure("Time line", " · ".join(p for p in (subtitle, how) if p), theme, height=120 + _ROW * len(names) + 30)
    rows = {name: len(names) - 1 - n for n, name in enumerate(names)}
    many = [n for n in names if views[n]["events"] is None]
    if many:
        _bins(fig, {rows[n]: views[n] for n in many}, zero_ns, factor, unit, c)
    for name in names:
        if views[name]["events"]:
            _events(fig, rows[name], views[name], zero_ns, factor, unit, c)
    x = np.linspace(begin / factor, end / factor, _HANDLES).tolist()
    fig.add_scatter(
        x=[*x] * len(names), y=[row for row in rows.values() for _ in x], mode="markers", marker=dict(size=2, opacity=0),
        hoverinfo="skip", selected=dict(marker=dict(opacity=0)), unselected=dict(marker=dict(opacity=0)), showlegend=False,
    )  # fmt: skip
    for name, row in rows.items():
        count = views[name]["count"]
        fig.add_annotation(
            x=0, xref="paper", xanchor="left", y=row + 0.5, yanchor="middle", showarrow=False, bgcolor=c["paper"], borderpad=1,
            text=f"{plain(name)} · {count:,} event{'' if count == 1 else 's'}", font=dict(size=11.5, color=c["muted"]),
        )  # fmt: skip
    fig.update_yaxes(range=[-0.5, len(names) - 0.2], visible=False, fixedrange=True)
    fig.update_xaxes(range=[begin / factor, end / factor], title_text=f"time since the first event ({unit})", showgrid=True)
    fig.update_layout(dragmode="select", selectdirection="h", bargap=0, barmode="overlay", margin=dict(l=8, r=8))
    return fig


def nanoseconds(value: float, begin_ns: int, end_ns: int, zero_ns: int) -> int:
    """A place on the axis of such a figure as absolute ns."""
    _, factor = _unit(end_ns - begin_ns, max(abs(begin_ns - zero_ns), abs(end_ns - zero_ns)))
    return zero_ns + round(value * factor)


def _unit(span: int, furthest: int) -> tuple[str, float]:
    """The unit of the axis and its ns; one in which the places still differ by their first six digits."""
    if span < 2e6 and furthest < 1e9:
        return "µs", 1e3
    return ("ms", 1e6) if span < 5e9 else ("s", 1e9)


def _bins(fig: go.Figure, rows: dict[int, dict], zero_ns: int, factor: float, unit: str, c: dict) -> None:
    view = next(iter(rows.values()))
    count = len(view["bins"]["busy"])
    wide = (view["end_ns"] - view["begin_ns"]) / count / factor
    first = (view["begin_ns"] - zero_ns) / factor + wide / 2
    for row, one in rows.items():
        busy = np.asarray(one["bins"]["busy"])
        texts = [
            f"busy {numbers.percent(float(b))}, {n:,} begin here<br>longest: {plain(name, 120) if name else 'none begins here'}"
            for b, n, name in zip(busy, one["bins"]["count"], one["bins"]["name"])
        ]
        fig.add_heatmap(
            x0=first, dx=wide, y=[row - 0.32, row + 0.3], z=[one["bins"]["busy"]], zmin=0, zmax=1, showscale=False, customdata=[texts],
            colorscale=[[0, c["grid"]], [1e-9, "#A9CBE4" if c["paper"] == "#FFFFFF" else "#1F4E73"], [1, "#0072B2"]],
            hovertemplate=f"%{{x:.6g}} {unit}<br>%{{customdata}}<extra></extra>",
        )  # fmt: skip


def _events(fig: go.Figure, row: int, view: dict, zero_ns: int, factor: float, unit: str, c: dict) -> None:
    events = view["events"]
    starts = [(e["ts_ns"] - zero_ns) / factor for e in events]
    span = view["end_ns"] - view["begin_ns"]
    least = span / 1600  # about a pixel: what is shorter would not be seen; the hover has the true time
    wide = [e["dur_ns"] > span / 40 for e in events]
    fig.add_bar(
        orientation="h", base=starts, x=[max(e["dur_ns"], least) / factor for e in events], y=[row] * len(events), width=0.62,
        marker=dict(color=[hue(e["name"]) for e in events], line=dict(color=c["paper"], width=0)),
        text=[label(e["name"]) if w else "" for e, w in zip(events, wide)], textposition="inside", insidetextanchor="start",
        textfont=dict(size=11, color=[text_on(hue(e["name"])) for e in events]), textangle=0, constraintext="none", cliponaxis=True,
        customdata=[
            f"<b>{plain(e['name'], 160)}</b><br>{numbers.time(e['dur_ns'] / 1e6)} from {s:.6g} {unit}" for e, s in zip(events, starts)
        ],
        hovertemplate="%{customdata}<extra></extra>", showlegend=False,
    )  # fmt: skip
