"""Axes and labels that charts share: ratios, logarithms, names of rows and of curves."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from fusescope.charts import numbers, template
from fusescope.charts.colours import colour, glyph, short
from fusescope.charts.verdicts import unknown

_RATIOS = (
    *(1, 10, 100, 1000, 0.1, 0.01, 0.001),
    *(2, 0.5, 5, 0.2, 20, 0.05, 50, 0.02, 200, 500, 0.005, 0.002),
    *(1.5, 0.7, 3, 0.8, 1.25, 0.9, 1.1, 0.95, 1.05),
)
"""Ratios as people write them, the most useful ticks first."""
_CHARACTER = 0.57  # of a font's size that a character takes in the widest of the template's fonts
_TICK_SHARE = 0.16  # of the axis that a tick's label needs, to be readable on the narrowest chart


def row_labels(
    fig: go.Figure,
    rows: Mapping[Any, tuple[str, str]],
    shift: int,
    theme: str,
    beside: int | None = None,
) -> None:
    """Two texts, {y: (left, right)}, in a line ``shift`` pixels above each row: rows so named keep the whole
    width for what is drawn in them. The second is at the right edge, or ``beside`` pixels from the
    left."""
    place = dict(x=1, xanchor="right") if beside is None else dict(x=0, xanchor="left", xshift=beside)
    common = dict(
        xref="paper",
        yshift=shift,
        yanchor="middle",
        showarrow=False,
        bgcolor=template.THEMES[theme]["paper"],
        borderpad=1,
    )
    texts = []
    for y, (left, right) in rows.items():
        texts.append(dict(x=0, y=y, xanchor="left", text=left, **common))
        texts.append(dict(y=y, text=right, **place, font=dict(size=12.5), **common))
    # At once: each add_annotation copies all that are there.
    fig.update_layout(annotations=[*fig.layout.annotations, *texts])


def end_labels(
    fig: go.Figure,
    ends: list[tuple[float, str]],
    low: float,
    high: float,
    mark: str = "",
    names: Mapping[str, str] | None = None,
) -> None:
    """Names at the right edge, each (value, implementation) at the height of its value on a logarithmic axis
    from low to high, pushed apart where they meet: direct labels instead of a legend. Before each stands
    ``mark``, or the implementation's marker. names: what an implementation is called instead."""
    gap = max(math.log10(high / low) or 0.1, 0.19) * 0.052  # the height of a line of text
    order = sorted(ends)
    places: list[float] = []
    for value, _ in order:
        places.append(max(math.log10(value), places[-1] + gap) if places else math.log10(value))
    ceiling = math.log10(high) + 0.3 * gap  # plotly draws no label beyond the axis: push down from the top
    for n in reversed(range(len(places))):
        places[n] = min(places[n], ceiling)
        ceiling = places[n] - gap
    for (_, impl), y in zip(order, places, strict=True):
        sign = f"<span style='color:{colour(impl)}'>{mark or glyph(impl)}</span>"
        at_right(fig, f"{sign} {(names or {}).get(impl) or short(impl)[:20]}", y, 10, yref="y")


def within(middles: Iterable[float | None], bounds: Iterable[float | None] = ()) -> tuple[float, float]:
    """(low, high) for a logarithmic axis: every median, and intervals as far as a factor of four beyond them.

    A noisy machine gives intervals over many decades; drawn whole, they would press everything else into a
    line.
    """
    known = [v for v in middles if v and v > 0]
    if not known:
        return 1.0, 1.0
    low, high = min(known), max(known)
    ends = [v for v in bounds if v is not None]
    return max(min([low, *ends]), low / 4), min(max([high, *ends]), high * 4)


def ratio(values: list[float | None], bounds: Iterable[float | None] = ()) -> dict:
    """A logarithmic axis around 1.0 that holds all values (and intervals, see ``within``), with ticks people
    use for ratios."""
    low, high = within([v for v in values if v] or [1.0], bounds)
    low, high = min(low, 0.8) / 1.08, max(high, 1.25) * 1.08
    apart = _TICK_SHARE * math.log10(high / low)
    inside: list[float] = []
    for tick in _RATIOS:
        if low <= tick <= high and all(abs(math.log10(tick / other)) >= apart for other in inside):
            inside.append(tick)
    inside.sort()
    return dict(
        type="log",
        range=[math.log10(low), math.log10(high)],
        tickvals=inside,
        ticktext=[f"{t:g}×" for t in inside],
        tickangle=0,
    )


def ticks_at(values: list[float]) -> dict:
    """A base-10 logarithmic axis with a tick on each value measured, as sweeps over powers of two want."""
    known = sorted({v for v in values if v and v > 0})
    return (
        dict(type="log", tickvals=known, ticktext=[f"{v:,.0f}" for v in known]) if known else dict(type="log")
    )


def log(low: float, high: float) -> dict:
    """A logarithmic axis from low to high whose ticks are written out: 1-2-5 steps, closer ones in a range of
    about a decade, even steps where it is less than a factor of three."""
    if high / low > 3:
        first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
        marks = (1, 2, 5) if high / low > 12 else (1, 1.5, 2, 3, 5, 7)
        marks = marks if last - first <= 3 else (1,)
        steps = [m * 10.0**e for e in range(first, last + 1) for m in marks]
    else:
        step = 10.0 ** math.floor(math.log10(high - low + high * 1e-3))
        step *= 5 if (high - low) / step > 20 else 2 if (high - low) / step > 8 else 1
        steps = [step * n for n in range(math.floor(low / step), math.ceil(high / step) + 2)]
    inside = [s for s in steps if low * 0.97 <= s <= high * 1.03]
    span = math.log10(high / low) or 0.1
    view = [math.log10(low) - 0.04 * span, math.log10(high) + 0.04 * span]
    return dict(
        type="log", range=view, tickvals=inside, ticktext=[numbers.three(s) for s in inside], tickangle=0
    )


def interval(
    values: Sequence[float], lows: Sequence[float], highs: Sequence[float], colour: str, thick=1.3
) -> dict:
    """Error bars from lows to highs around values."""
    return dict(
        type="data",
        symmetric=False,
        color=colour,
        thickness=thick,
        width=4,
        array=[h - v for v, h in zip(values, highs, strict=True)],
        arrayminus=[v - low for v, low in zip(values, lows, strict=True)],
    )


def ratio_bar(
    fig: go.Figure, y: Any, value: float, ends: tuple[float, float] | None, ink: str, **bar
) -> None:
    """A horizontal bar from 1 to ``value`` with its interval, where it is known, on an axis of ratios."""
    fig.add_bar(y=[y], x=[value - 1], base=1, orientation="h", width=0.36, **bar)
    if ends and not unknown(*ends):
        fig.add_scatter(
            y=[y],
            x=[value],
            mode="markers",
            marker=dict(color=ink, size=1),
            hoverinfo="skip",
            error_x=interval([value], [ends[0]], [ends[1]], ink, 1.6),
        )


def arrows(fig: go.Figure, axis: dict, ends: Mapping[Any, tuple[float, float]], ink: str) -> None:
    """Arrowheads where the intervals of ``ratio_bar``, by row, reach beyond the axis of ratios (``ratio``): a
    line from edge to edge looks like a rule of the table."""
    first, last = (10.0**end for end in axis["range"])
    for y, (low, high) in ends.items():
        if unknown(low, high):
            continue
        beyond = [(first, "triangle-left")] * (low < first) + [(last, "triangle-right")] * (high > last)
        if beyond:
            fig.add_scatter(
                y=[y] * len(beyond),
                x=[x for x, _ in beyond],
                mode="markers",
                marker=dict(color=ink, size=11, symbol=[symbol for _, symbol in beyond]),
                cliponaxis=False,
                hoverinfo="skip",
            )


def named_rows(fig: go.Figure, order: Sequence, **settings) -> None:
    """A y axis whose rows are named by ``row_labels`` instead of ticks, from the bottom up."""
    fig.update_yaxes(
        showticklabels=False,
        showgrid=False,
        ticks="",
        range=[-0.4, len(order) - 0.22],  # the line above the first row stands clear of the axis
        **settings,
    )


def downwards(fig: go.Figure, rows: Iterable, **settings) -> None:
    """A y axis of categories, the first on top, with room for their names (``left``); one with
    ``autorange="reversed"`` a browser draws twice."""
    rows = set(rows)
    fig.update_yaxes(range=[len(rows) - 0.5, -0.5], **settings)
    left(fig, rows, title=False)


def frames(fig: go.Figure, cells: Iterable[tuple[int, int]], colour: str) -> None:
    """A frame around cells (column, row) of a heat map whose axes are categories."""
    for x, y in cells:
        box = dict(x0=x - 0.47, x1=x + 0.47, y0=y - 0.45, y1=y + 0.45)
        fig.add_shape(type="rect", **box, line=dict(color=colour, width=2))


def line_at(fig: go.Figure, theme: str, **place) -> None:
    """The line of no change: x=1 or y=1 on an axis of ratios, 0 on one of differences."""
    add = fig.add_vline if "x" in place else fig.add_hline
    add(**place, line=dict(color=template.THEMES[theme]["ink"], width=1.5), layer="below")


def note(
    fig: go.Figure, text: str, x: Any, y: Any, size: float = 12, colour: str | None = None, **place
) -> None:
    """A text without an arrow."""
    fig.add_annotation(text=text, x=x, y=y, showarrow=False, font=dict(size=size, color=colour), **place)


def at_right(fig: go.Figure, text: str, y: Any, shift: int = 8, **place) -> None:
    """A text next to the plot, at the height of a value."""
    note(fig, text, 1, y, xref="paper", xanchor="left", xshift=shift, **place)


def left(fig: go.Figure, labels: Iterable[str] = ("10,000",), size: float = 13, title: bool = True) -> None:
    """A margin with room for the tick labels of the left axis (at ``size`` pixels; the usual ones of numbers)
    and its ``title``. So plotly need not draw all a second time once it has measured the labels, which is
    half the time of a chart."""
    widest = max((len(label) for label in labels), default=0) * size * _CHARACTER
    fig.update_yaxes(automargin=False)
    fig.update_layout(margin=dict(l=round(widest) + (40 if title else 12)))


def room(
    fig: go.Figure,
    labels: Iterable[str] = ("10,000",),
    size: float = 13,
    title: bool = True,
    bottom: int = template.BOTTOM,
) -> None:
    """``left``, and ``bottom`` pixels below the plot, whatever the labels there: for those whose size is
    known."""
    left(fig, labels, size, title)
    fig.update_xaxes(automargin=False)
    fig.update_layout(margin=dict(b=bottom))


def handles(fig: go.Figure, x: Sequence[float], y: Sequence[float]) -> None:
    """Invisible points, so that a box can be drawn on a picture: plotly selects points, not pixels. One of
    them is drawn; the others would take as long as the picture."""
    hidden = dict(marker=dict(opacity=0))
    marker = dict(size=2, opacity=0, maxdisplayed=1)
    fig.add_scatter(
        x=x,
        y=y,
        mode="markers",
        marker=marker,
        hoverinfo="skip",
        selected=hidden,
        unselected=hidden,
        showlegend=False,
    )
