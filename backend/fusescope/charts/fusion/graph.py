"""The layer as a graph from top to bottom: 15 operators, boxed by segment and coloured by implementation;
skip connections at the side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from fusescope.charts import numbers, template

MAKERS = {"torch": "plain torch", "inductor": "torch.compile"}
"""Labels of other implementations than our kernels."""
_MADE_BY = ("ours", "compiled", "torch")
_COLOURS = {"light": ("#E08A3C", "#7FB2DA", "#B9C2CC"), "dark": ("#B4602A", "#2F6690", "#4C5764")}
_ROW = 27  # pixels of an operator
_LEFT, _RIGHT = 0.13, 0.65  # of the width: the boxes; skip connections are left of them, labels right


@dataclass(frozen=True)
class Part:
    """A segment as drawn: its operators with their names, its implementation, FLOP and minimum traffic in
    bytes."""

    numbers: Sequence[int]
    names: Sequence[str]
    how: str
    flop: float
    bytes: float


def draw(
    parts: Sequence[Part],
    edges: Sequence[tuple[int, int, str]],
    residual: int,
    title: str,
    subtitle: str = "",
    theme: str = "light",
    free: Sequence[int] = (),
) -> go.Figure:
    """``edges``: (from operator, to operator, value); ``residual``: the operator that adds the layer's input;
    ``free``: operators after which a cut can be made or undone, marked with the operator's number as
    ``customdata[1]``."""
    c = template.THEMES[theme]
    place = {n: i for i, n in enumerate(n for p in parts for n in p.numbers)}
    fig = template.figure(title, subtitle, theme, height=template.TOP + 30 + _ROW * len(place))
    shapes, notes = [], []
    for part in parts:
        first, last = place[part.numbers[0]], place[part.numbers[-1]]
        fill = _COLOURS[theme][colour_index(part.how)]
        shapes.append(
            dict(
                type="rect",
                x0=_LEFT,
                x1=_RIGHT,
                y0=first - 0.44,
                y1=last + 0.44,
                fillcolor=fill,
                line_width=0,
                layer="below",
            )
        )
        notes += [
            dict(
                x=_LEFT + 0.015,
                y=place[n],
                xanchor="left",
                text=f"<b>{n}</b>  {name}",
                font=dict(size=11, color=c["ink"]),
            )
            for n, name in zip(part.numbers, part.names, strict=True)
        ]
        text = f"<b>{_MADE_BY[colour_index(part.how)]}</b> · {numbers.size(part.bytes)}"
        middle = (first + last) / 2
        notes.append(dict(x=_RIGHT + 0.015, y=middle, xanchor="left", text=text, font=dict(size=11)))
    skips = [(place[a], place[b], value) for a, b, value in edges if place[b] > place[a] + 1] + [
        (-0.6, place[residual], "x")
    ]
    for lane, (start, end, value) in enumerate(sorted(skips, key=lambda s: s[1] - s[0])):
        x = _LEFT - 0.03 - 0.022 * (lane % 5)
        path = f"M {_LEFT},{start} L {x},{start} L {x},{end} L {_LEFT},{end}"
        shapes.append(dict(type="path", path=path, line=dict(color=c["line"], width=1.2), layer="below"))
        notes.append(
            dict(
                x=x - 0.004,
                y=(start + end) / 2,
                xanchor="right",
                text=value,
                textangle=-90,
                font=dict(size=10, color=c["muted"]),
            )
        )
    common = dict(showarrow=False, xref="x", yref="y")
    fig.update_layout(
        shapes=shapes,
        annotations=[common | n for n in notes],
        margin=dict(l=4, r=4, b=8),
        xaxis=dict(range=[0, 1], visible=False, fixedrange=True),
        yaxis=dict(range=[len(place) - 0.4, -0.8], visible=False, fixedrange=True),
    )
    fig.add_scatter(
        x=[(_LEFT + _RIGHT) / 2] * len(place),
        y=list(range(len(place))),
        mode="markers",
        marker=dict(size=18, opacity=0),
        hovertext=[_hover(n, name, p) for p in parts for n, name in zip(p.numbers, p.names, strict=True)],
        hoverinfo="text",
    )
    if free:
        _switches(fig, parts, place, free, theme)
    return fig


def _switches(fig, parts: Sequence[Part], place: Mapping[int, int], free: Sequence[int], theme: str) -> None:
    """A mark on each boundary: − where the two operators are fused, + where they are not."""
    c = template.THEMES[theme]
    fused = {n for p in parts for n in list(p.numbers)[:-1]}
    fig.add_scatter(
        x=[_RIGHT - 0.03] * len(free),
        y=[place[n] + 0.5 for n in free],
        mode="markers+text",
        text=["−" if n in fused else "+" for n in free],
        textfont=dict(size=12, color=c["ink"]),
        marker=dict(size=16, color=c["paper"], line=dict(color=c["line"], width=1)),
        customdata=[["boundary", str(n)] for n in free],
        hovertext=[f"{'cut between' if n in fused else 'fuse'} {n} and {n + 1}" for n in free],
        hoverinfo="text",
    )


def _hover(number: int, name: str, part: Part) -> str:
    cost = f"{numbers.three(part.flop / 1e9)} GFLOP, minimum traffic {numbers.size(part.bytes)}"
    return f"<b>{number} {name}</b><br>kernel: {maker(part.how)}<br>{cost}"


def maker(how: str) -> str:
    """The implementation of a segment, for people."""
    return MAKERS.get(how, f"our {how.replace('_', ' ')}")


def colour_index(how: str) -> int:
    """Ours, compiled, plain: 0, 1, 2."""
    return {"inductor": 1, "torch": 2}.get(how, 0)


def legend(theme: str = "light") -> Mapping[str, str]:
    """Label → colour, for a line under the chart."""
    return dict(zip(("hand-written kernel", "torch.compile", "plain torch"), _COLOURS[theme], strict=True))
