"""A profile's timeline: lanes with single events where there are few, else the share of time busy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
import plotly.graph_objects as go

from fusescope.charts import axes, numbers, template
from fusescope.charts.escape import hue, label, plain, text_on

_HANDLES = 200
_ROW = 40  # pixels per lane
_PIXELS = 700  # of a narrow screen: a shorter event is drawn one pixel long; the hover has its true time
_LETTERS = 110  # that fit into the whole span there
_LEAST = 6  # letters of a useful name


def lanes(
    views: Mapping[str, dict],
    zero_ns: int,
    subtitle: str = "",
    theme: str = "light",
    marks: Mapping[str, Sequence[int]] = MappingProxyType({}),
) -> go.Figure:
    """views: lane → ``store.timeline.window``, all over the same span; zero_ns: what time 0 is; marks: lane →
    times (ns) that an arrow above it points at. A box drawn is a selection."""
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
    fig = template.figure(
        "Timeline", template.join(subtitle, how), theme, height=120 + _ROW * len(names) + 30
    )
    rows = {name: len(names) - 1 - n for n, name in enumerate(names)}
    for name, view in views.items():
        if view["events"] is None:
            _bins(fig, rows[name], view, zero_ns, factor, unit, c)
        elif view["events"]:
            _events(fig, rows[name], view, zero_ns, factor, unit)
    for name, times in marks.items():
        if len(times) and name in rows:
            fig.add_scatter(
                x=[(t - zero_ns) / factor for t in times],
                y=[rows[name] + 0.36] * len(times),
                mode="markers",
                marker=dict(symbol="triangle-down", size=9, color=c["ink"]),
                hoverinfo="skip",
                showlegend=False,
            )
    x = np.linspace(begin / factor, end / factor, _HANDLES).tolist()
    axes.handles(fig, x, [0] * len(x))
    for name, row in rows.items():
        count = views[name]["count"]
        fig.add_annotation(
            x=0,
            xref="paper",
            xanchor="left",
            y=row + 0.5,
            yanchor="middle",
            showarrow=False,
            bgcolor=c["paper"],
            borderpad=1,
            text=f"{plain(name)} · {count:,} event{'' if count == 1 else 's'}",
            font=dict(size=11.5, color=c["muted"]),
        )
    fig.update_yaxes(range=[-0.5, len(names) - 0.2], visible=False, fixedrange=True)
    fig.update_xaxes(
        range=[begin / factor, end / factor], title_text=f"time since the first event ({unit})", showgrid=True
    )
    fig.update_layout(
        dragmode="select", selectdirection="h", bargap=0, barmode="overlay", margin=dict(l=18, r=16)
    )
    return fig


def nanoseconds(value: float, begin_ns: int, end_ns: int, zero_ns: int) -> int:
    """A position on the axis of such a figure as absolute ns."""
    _, factor = _unit(end_ns - begin_ns, max(abs(begin_ns - zero_ns), abs(end_ns - zero_ns)))
    return zero_ns + round(value * factor)


def _unit(span: int, furthest: int) -> tuple[str, float]:
    """The unit of the axis and its ns; one in which the places still differ by their first six digits."""
    if span < 2e6 and furthest < 1e9:
        return "µs", 1e3
    return ("ms", 1e6) if span < 5e9 else ("s", 1e9)


def _bins(fig: go.Figure, row: int, view: dict, zero_ns: int, factor: float, unit: str, c: dict) -> None:
    bins = view["bins"]
    wide = (view["end_ns"] - view["begin_ns"]) / len(bins["busy"]) / factor
    names = {None: "none starts here"} | {name: plain(name, 120) for name in set(bins["name"]) - {None}}
    texts = [
        f"busy {numbers.percent(busy)}, {count:,} start here<br>longest: {names[name]}"
        for busy, count, name in zip(bins["busy"], bins["count"], bins["name"], strict=True)
    ]
    fig.add_heatmap(
        x0=(view["begin_ns"] - zero_ns) / factor + wide / 2,
        dx=wide,
        z=np.array([bins["busy"]]),
        zmin=0,
        zmax=1,
        colorscale=[
            [0, c["grid"]],
            [1e-9, "#A9CBE4" if c["paper"] == "#FFFFFF" else "#1F4E73"],
            [1, "#0072B2"],
        ],
        hovertemplate=f"%{{x:.6g}} {unit}<br>%{{customdata}}<extra></extra>",
        **_across(row, texts),
    )


def _events(fig: go.Figure, row: int, view: dict, zero_ns: int, factor: float, unit: str) -> None:
    """Each event as a cell of one picture: hundreds of shapes would take a browser half a second to set
    up."""
    events, span = view["events"], view["end_ns"] - view["begin_ns"]
    begins = np.array([e["ts_ns"] for e in events])
    ends = begins + np.maximum([e["dur_ns"] for e in events], span / _PIXELS)
    seen = np.append(
        begins[1:] > begins[:-1], True
    )  # of events that begin together the last; each until the next begins
    begins, ends, events = (
        begins[seen],
        ends[seen],
        [e for e, there in zip(events, seen, strict=True) if there],
    )
    ends = np.minimum(ends, np.append(begins[1:], np.inf))
    edges = np.column_stack([begins, ends]).clip(view["begin_ns"], view["end_ns"]).reshape(-1)
    colours = [hue(e["name"]) for e in events]
    known = list(dict.fromkeys(colours))
    z, texts = np.full((1, len(edges) - 1), np.nan), [""] * (len(edges) - 1)
    z[0, ::2] = [known.index(colour) for colour in colours]
    texts[::2] = [
        f"<b>{plain(e['name'], 160)}</b><br>{numbers.time(e['dur_ns'] / 1e6)} from "
        f"{(e['ts_ns'] - zero_ns) / factor:.6g} {unit}"
        for e in events
    ]
    fig.add_heatmap(
        x=((edges - zero_ns) / factor).tolist(),
        z=z,
        zmin=0,
        zmax=len(known),
        hoverongaps=False,
        colorscale=[[(n + side) / len(known), colour] for n, colour in enumerate(known) for side in (0, 1)],
        hovertemplate="%{customdata}<extra></extra>",
        **_across(row, texts),
    )
    named = [
        (begin, colour, label(str(event["name"]).removeprefix("aten::"), fits))
        for begin, end, colour, event in zip(edges[::2], edges[1::2], colours, events, strict=True)
        if (fits := int((end - begin) / span * _LETTERS)) >= _LEAST
    ]
    if named:
        fig.add_scatter(
            x=[(begin - zero_ns) / factor for begin, _, _ in named],
            y=[row] * len(named),
            mode="text",
            text=[f"\u00a0{text}" for *_, text in named],
            textposition="middle right",
            textfont=dict(size=11, color=[text_on(colour) for _, colour, _ in named]),
            hoverinfo="skip",
            showlegend=False,
        )


def _across(row: int, texts: list[str]) -> dict:
    """What makes a heat map a lane: its height, and a text for each cell."""
    return dict(y=[row - 0.31, row + 0.31], customdata=np.array([texts], dtype=object), showscale=False)
