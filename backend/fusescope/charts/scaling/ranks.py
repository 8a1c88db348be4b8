"""What the ranks of a layout do and hold: communication, hidden or not, and memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import plotly.graph_objects as go

from fusescope.charts import axes, numbers, template
from fusescope.charts.colours import SERIES
from fusescope.core.records import Record

PARTS = (
    ("arithmetic", SERIES[0]),
    ("communication, hidden", SERIES[3]),
    ("communication, exposed", SERIES[2]),
    ("neither", SERIES[6]),
)


def communication(records: Sequence[Record], subtitle: str = "", theme: str = "light") -> go.Figure:
    """A bar per rank of each layout: shares of one profiled call."""
    label = _labels(records)
    rows = [
        (f"{label(r)}, rank {n}", share)
        for r in records
        if (own := (r.extra or {}).get("parallel")) and own["ranks"] > 1
        for n, share in enumerate(own["communication"]["ranks"])
        if share and share["span_ms"] > 0
    ]
    if not rows:
        return template.empty("No layout of several devices was profiled.", theme)
    fig = template.figure(
        "Communication in a call", template.join(subtitle, "one profiled call per rank"), theme, _height(rows)
    )
    names = [name for name, _ in rows]
    for place, (name, ink) in enumerate(PARTS):
        values = [_parts(share)[place] for _, share in rows]
        fig.add_bar(
            y=names,
            x=[100 * v / s["span_ms"] for v, (_, s) in zip(values, rows, strict=True)],
            orientation="h",
            name=name,
            marker_color=ink,
            hovertext=[f"{name}: {numbers.time(v)}" for v in values],
            hoverinfo="text+y",
        )
    _lying(fig, "share of the call (%)")
    fig.update_xaxes(range=[0, 100])
    return fig


def memory(records: Sequence[Record], subtitle: str = "", theme: str = "light") -> go.Figure:
    """A bar per rank of each layout: bytes of its weights, and on a GPU what a call takes on top."""
    label = _labels(records)
    rows = [
        (f"{label(r)}, rank {n}" if own["ranks"] > 1 else label(r), weights, peak)
        for r in records
        if (own := (r.extra or {}).get("parallel"))
        for n, (weights, peak) in enumerate(zip(own["weights_bytes"], own["peak_bytes"], strict=True))
    ]
    if not rows:
        return template.empty("No layout has a record of its memory.", theme)
    fig = template.figure("Memory by rank", subtitle, theme, _height(rows))
    unit = 2**30 if max(w for _, w, _ in rows) > 2**30 else 2**20
    word = "GiB" if unit == 2**30 else "MiB"
    parts = [("weights", SERIES[0], [w for _, w, _ in rows])]
    if any(p for *_, p in rows):
        parts.append(("per call", SERIES[3], [max(0, (p or w) - w) for _, w, p in rows]))
    for name, ink, values in parts:
        fig.add_bar(
            y=[name for name, *_ in rows],
            x=[v / unit for v in values],
            orientation="h",
            name=name,
            marker_color=ink,
            hovertext=[f"{name}: {numbers.three(v / unit)} {word}" for v in values],
            hoverinfo="text+y",
        )
    _lying(fig, word)
    return fig


def _labels(records: Sequence[Record]) -> Callable[[Record], str]:
    """A layout's name, with its batch where there are several."""
    several = len({r.case.get("batch") for r in records}) > 1
    return lambda r: f"{r.impl}, batch {r.case.get('batch')}" if several else r.impl


def _parts(share: dict) -> tuple[float, float, float, float]:
    """ms of PARTS; arithmetic without what hides communication."""
    hidden = share["communication_ms"] - share["exposed_ms"]
    alone = max(0.0, share["compute_ms"] - hidden)
    rest = max(0.0, share["span_ms"] - alone - share["communication_ms"])
    return alone, hidden, share["exposed_ms"], rest


def _height(rows: Sequence) -> int:
    return 230 + 30 * len(rows)


def _lying(fig: go.Figure, title: str) -> None:
    fig.update_layout(
        barmode="stack",
        showlegend=True,
        legend=dict(orientation="h", yanchor="top", y=-50 / fig.layout.height, x=0, font=dict(size=12)),
        margin=dict(r=24, b=110),  # half of the last tick stands out
    )
    fig.update_xaxes(title_text=title, side="top", title_standoff=4)
    axes.downwards(fig, fig.data[0].y, showgrid=False)
