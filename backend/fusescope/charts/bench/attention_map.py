"""Attention over many masks and shapes as a table in colour."""

from __future__ import annotations

import math

import plotly.graph_objects as go

from fusescope.charts import axes, numbers, template
from fusescope.charts.bench.attention_grid import DENSE, NONE, Cell, doubt, hover, mask_name

_DOUBLINGS = 3  # to full colour: 8 times as fast, or as slow
_SCALED = 4  # rows from which there is room for a scale of colours beside them
_CROWDED = 12  # columns from which figures in cells are smaller
_NARROW_CROWDED = 9  # the same of a phone
_ROW, _NARROW_ROW = 30, 24  # pixels
_LETTER = 6.5  # pixels along a name that stands upright
_SHAPE = "batch × heads × sequence × head size"


def by_mask_and_shape(
    some: list[Cell], subtitle: str = "", theme: str = "light", narrow: bool = False
) -> go.Figure:
    """A table of ratios to the best peer in colour, masks down, shapes across; a ? where one is not proven, a
    frame where it is proven slower: 0.9 is hardly coloured. A click has its case in ``customdata[1]``.
    ``narrow``: shapes down and masks across, so that all names of a cell are in sight on a phone."""
    if not some:
        return template.empty(NONE, theme)
    masks = sorted({mask_name(c.mask) for c in some}, key=lambda name: (name not in DENSE, name))
    shapes = list(dict.fromkeys(c.shape for c in some))
    at = {(mask_name(c.mask), c.shape): c for c in some}
    down, across = (shapes, masks) if narrow else (masks, shapes)
    if narrow:
        at = {(shape, mask): c for (mask, shape), c in at.items()}
    crowded = len(across) >= (_NARROW_CROWDED if narrow else _CROWDED)
    height = 210 + (_NARROW_ROW if narrow else _ROW) * len(down)
    fig = template.figure("Speed-up of our best kernel over the best peer", subtitle, theme, height)
    scaled = len(down) >= _SCALED and not narrow
    _cells(fig, [[at.get((row, column)) for column in across] for row in down], across, down, theme)
    size = (8 if crowded else 9) if narrow else 9 if crowded else 11
    fig.data[0].update(showscale=scaled, textfont=dict(size=size))
    write = numbers.brief if crowded or narrow else numbers.three
    text = [["" if not (c := at.get((r, k))) else write(c.ratio) + doubt(c) for k in across] for r in down]
    fig.data[0].text = text
    shown = [(row, column, at[row, column]) for row in down for column in across if (row, column) in at]
    fig.add_scatter(  # what a click or a hover finds: a heat map has no points to select
        x=[column for _, column, _ in shown],
        y=[row for row, _, _ in shown],
        customdata=[(hover(c), c.case) for *_, c in shown],
        hovertemplate="%{customdata[0]}<extra></extra>",
        mode="markers",
        marker=dict(symbol="square", size=24, opacity=0, maxdisplayed=1),
        selected=dict(marker=dict(opacity=0)),
        unselected=dict(marker=dict(opacity=0)),
    )
    framed = [(across.index(column), down.index(row)) for row, column, c in shown if c.verdict == "slower"]
    axes.frames(fig, framed, template.SLOWER)
    _names(fig, across, down)
    if narrow:
        _upright(fig, across, down, lines=1 if crowded else 2)
    else:
        fig.update_xaxes(title_text=_SHAPE, tickangle=-45)
        axes.room(fig, down, 12, title=False, bottom=50 + round(7 * max(map(len, across)) * 0.71))
        fig.update_layout(margin=dict(r=76 if scaled else 16))
    return fig


def _cells(fig: go.Figure, grid: list[list[Cell | None]], across: list, down: list, theme: str) -> None:
    """The coloured cells with their scale."""
    ticks = [2**n for n in range(-_DOUBLINGS, _DOUBLINGS + 1)]
    fig.add_heatmap(
        x=across,
        y=down,
        z=[[None if c is None else math.log2(c.ratio) for c in line] for line in grid],
        texttemplate="%{text}",
        colorscale=template.RATIO_SCALE[theme],
        zmin=-_DOUBLINGS,
        zmax=_DOUBLINGS,
        colorbar=dict(
            title=dict(text="×", side="top"),
            tickvals=[math.log2(t) for t in ticks],
            ticktext=[f"1/{round(1 / t)}" if t < 1 else f"{t}" for t in ticks],
            thickness=12,
            outlinewidth=0,
        ),
        xgap=2,
        ygap=2,
        hoverinfo="skip",
    )


def _names(fig: go.Figure, across: list[str], down: list[str]) -> None:
    """Axes of names, without the room that plotly leaves around points."""
    plain = dict(showgrid=False, ticks="", linecolor="rgba(0,0,0,0)", type="category")
    plain |= dict(categoryorder="array")
    fig.update_yaxes(
        **plain, range=[len(down) - 0.5, -0.5], categoryarray=down, tickfont=dict(size=12), side="left"
    )
    fig.update_xaxes(**plain, range=[-0.5, len(across) - 0.5], categoryarray=across)


def _upright(fig: go.Figure, across: list[str], down: list[str], lines: int) -> None:
    """Names of columns above them, upright; those of two parts on up to so many lines."""
    names = [name.replace(", ", ",<br>", lines - 1) for name in across]
    longest = max(len(line) for name in names for line in name.split("<br>"))
    top = round(_LETTER * longest) + 12
    fig.update_xaxes(
        side="top", tickangle=-90, tickvals=across, ticktext=names, tickfont=dict(size=11), title_text=""
    )
    axes.room(fig, down, 11, title=False, bottom=36)
    fig.update_yaxes(tickfont=dict(size=11))
    axes.note(fig, _SHAPE, 0, 0, 11, xref="paper", yref="paper", xanchor="left", yanchor="top", yshift=-6)
    plot = _NARROW_ROW * len(down)
    head = fig.layout.margin.t + top
    fig.update_layout(margin=dict(t=head, r=4), height=head + plot + 36)
