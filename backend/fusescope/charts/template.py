"""The one look of all charts, in light and dark, and what they share: subtitle, ratio axes, hover,
save-as-image settings."""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

import plotly.graph_objects as go

from fusescope.charts import numbers
from fusescope.charts.colours import colour, short
from fusescope.core.records import Record, Run

THEMES = {
    "light": {"ink": "#1F2933", "muted": "#52606D", "grid": "#E4E7EB", "line": "#7B8794", "paper": "#FFFFFF"},
    "dark": {"ink": "#F0F2F5", "muted": "#AEB7C2", "grid": "#333A45", "line": "#8A94A3", "paper": "#0F1319"},
}
TOP = 66
"""Pixels above the plot for a title and one line under it."""
FONT = "'Source Sans 3', 'Source Sans Pro', 'Segoe UI', 'Helvetica Neue', Arial, sans-serif"
_LINE = (
    21  # pixels of one more line under a title: plotly sets all lines of a title at the height of the largest
)
_SUBTITLE = 58  # characters that fit under the title of the narrowest chart (about 350 px)
_RATIOS = (
    1,
    10,
    100,
    1000,
    0.1,
    0.01,
    0.001,
    2,
    0.5,
    5,
    0.2,
    20,
    0.05,
    50,
    0.02,
    200,
    500,
    0.005,
    0.002,
    1.5,
    0.7,
    3,
    0.8,
    1.25,
    0.9,
    1.1,
    0.95,
    1.05,
)
"""Ratios as people write them, those that a chart should have first of all first."""
_TICK_SHARE = (
    0.16  # of the axis that a tick's label needs at least, so that it can be read on the narrowest chart
)


def figure(title: str, subtitle: str = "", theme: str = "light", height: int = 380) -> go.Figure:
    """An empty figure in the common look; ``height`` in pixels is that with one line of ``subtitle``, and
    further lines (<br>, or where it is too long for a narrow chart) add to it. The paper has the page's
    colour, so that a saved image is as readable.

    A page shows plotly each figure twice, the second time a copy. ``datarevision`` says that its data are the
    same, and a template would be taken for another one; else a browser would draw all of it again. (NumPy
    arrays count as other data: give lists.)
    """
    c = THEMES[theme]
    subtitle = "<br>".join(wrapped(line) for line in subtitle.split("<br>"))
    axis = dict(
        gridcolor=c["grid"],
        linecolor=c["line"],
        zeroline=False,
        ticks="outside",
        ticklen=4,
        tickcolor=c["line"],
        automargin=True,
        title=dict(font=dict(size=12, color=c["muted"]), standoff=12),
    )
    lines = subtitle.count("<br>")
    height += _LINE * lines
    layout = dict(
        title=dict(
            text=f"<b>{title}</b>"
            + (f"<br><span style='font-size:12px;color:{c['muted']}'>{subtitle}</span>" if subtitle else ""),
            x=0,
            xanchor="left",
            xref="container",
            y=1 - 12 / height,
            yanchor="top",
            font=dict(size=16),
        ),
        font=dict(family=FONT, size=13, color=c["ink"]),
        paper_bgcolor=c["paper"],
        plot_bgcolor=c["paper"],
        margin=dict(l=8, r=16, t=TOP + _LINE * lines, b=44),
        height=height,
        hoverlabel=dict(
            bgcolor=c["paper"],
            bordercolor=c["line"],
            font=dict(family=FONT, color=c["ink"], size=12),
            align="left",
        ),
        xaxis=axis,
        yaxis=axis,
        showlegend=False,
        bargap=0.35,
        datarevision=1,
        modebar=dict(bgcolor="rgba(0,0,0,0)", color=c["muted"], activecolor=c["ink"]),
    )
    fig = go.Figure(layout=layout)  # a third of the time that update_layout takes
    fig.layout.template = None  # plotly's own, which a figure gets otherwise
    return fig


def wrapped(text: str, width: int = _SUBTITLE) -> str:
    """The text with <br> where it is longer than ``width`` characters, at " · " or ", " before it breaks
    between words."""
    lines = [""]
    for part in re.split(r"(?<= · )|(?<=, )", text):
        for piece in [part] if len(part) <= width else re.split(r"(?<= )", part):
            if lines[-1] and len(lines[-1] + piece.rstrip(" ·,")) > width:
                lines.append("")
            lines[-1] += piece
    return "<br>".join(line.rstrip(" ·") for line in lines)


def config(name: str, image: str = "png") -> dict:
    """plotly's display settings: the camera button saves ``name`` as PNG (twofold resolution) or SVG; nothing
    goes to a cloud."""
    return {
        "displaylogo": False,
        "responsive": True,
        "modeBarButtonsToRemove": ["lasso2d", "select2d", "autoScale2d"],
        "toImageButtonOptions": {"format": image, "filename": name, "scale": 2 if image == "png" else 1},
        "showSendToCloud": False,
    }


def row_words(fig: go.Figure, rows: Mapping[Any, tuple[str, str]], shift: int, theme: str) -> None:
    """Two texts, {y: (left, right)}, in a line ``shift`` pixels above each row: rows so named keep the whole
    width for what is drawn in them."""
    common = dict(
        xref="paper",
        yshift=shift,
        yanchor="middle",
        showarrow=False,
        bgcolor=THEMES[theme]["paper"],
        borderpad=1,
    )
    words = []
    for y, (left, right) in rows.items():
        words.append(dict(x=0, y=y, xanchor="left", text=left, **common))
        words.append(dict(x=1, y=y, xanchor="right", text=right, font=dict(size=12.5), **common))
    # At once: each add_annotation copies all that are there.
    fig.update_layout(annotations=[*fig.layout.annotations, *words])


def end_labels(fig: go.Figure, ends: list[tuple[float, str, str]], low: float, high: float) -> None:
    """Names at the right edge, each (value, implementation, mark) at the height of its value on a logarithmic
    axis from low to high, pushed apart where they meet: direct labels instead of a legend."""
    gap = (
        max(math.log10(high / low) or 0.1, 0.19) * 0.052
    )  # the height of a line of text on a chart of this size
    order = sorted(ends)
    places: list[float] = []
    for value, _, _ in order:
        places.append(max(math.log10(value), places[-1] + gap) if places else math.log10(value))
    ceiling = (
        math.log10(high) + 0.3 * gap
    )  # a label beyond the axis would not be drawn: push down from the top then
    for n in reversed(range(len(places))):
        places[n] = min(places[n], ceiling)
        ceiling = places[n] - gap
    for (_, impl, mark), y in zip(order, places, strict=True):
        fig.add_annotation(
            x=1,
            xref="paper",
            xanchor="left",
            xshift=10,
            y=y,
            yref="y",
            showarrow=False,
            text=f"<span style='color:{colour(impl)}'>{mark}</span> {short(impl)[:20]}",
            font=dict(size=12),
        )


def date(unix_seconds: float | None) -> str:
    """ "20 Nov 2026 10:42" in local time, "" for None."""
    if unix_seconds is None:
        return ""
    return datetime.datetime.fromtimestamp(unix_seconds).strftime("%d %b %Y %H:%M").lstrip("0")


def context(run: Run) -> str:
    """Device, dtype and date of a run: what stands under the title of each of its charts."""
    dtype = str(run.spec.get("dtype") or "")
    words = [run.device_name, dtype, date(run.finished or run.started or run.created)]
    return " · ".join(w for w in words if w)


def mode_words(mode: str | None) -> str:
    """A timing mode in words: what exactly the number is."""
    return {
        "graph": "kernel time (graph replay), warm cache",
        "graph_cold": "kernel time (graph replay), cold cache",
        "eager": "eager call, warm cache",
        "eager_cold": "eager call, cold cache",
    }.get(mode or "", "no time")


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


def ratio_axis(values: list[float | None], bounds: Iterable[float | None] = ()) -> dict:
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


def log_ticks(values: list[float]) -> dict:
    """A base-10 logarithmic axis with a tick on each value measured, as sweeps over powers of two want."""
    known = sorted({v for v in values if v and v > 0})
    return (
        dict(type="log", tickvals=known, ticktext=[f"{v:,.0f}".replace(",", " ") for v in known])
        if known
        else dict(type="log")
    )


def plain_log(low: float, high: float) -> dict:
    """A logarithmic axis from low to high whose ticks are written out: 1-2-5 steps, or even steps where the
    range is less than a factor of three."""
    if high / low > 3:
        first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
        steps = [m * 10.0**e for e in range(first, last + 1) for m in (1, 2, 5)]
        if last - first > 3:
            steps = [10.0**e for e in range(first, last + 1)]
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


def case_words(record: Record) -> str:
    """A case as "batch=8, seq=512, mask=bigbird": what a person would type; what follows from the rest is
    left out."""
    return case_words_of(record.case)


def case_words_of(case: Mapping) -> str:
    """The same for a case, or a part of one, by itself."""
    follows = {"seq_k": "seq", "kv_heads": "heads"}
    told = {
        k: v
        for k, v in case.items()
        if v not in (None, "none") and (k not in follows or v != case.get(follows[k]))
    }
    return ", ".join(f"{k}={v}" for k, v in told.items())


def empty(text: str, theme: str = "light", height: int = 160) -> go.Figure:
    """A figure that says in one sentence why there is nothing to draw."""
    fig = figure("", "", theme, height)
    fig.update_layout(xaxis=dict(visible=False), yaxis=dict(visible=False), margin=dict(l=8, r=8, t=8, b=8))
    fig.add_annotation(
        text=text,
        x=0.5,
        y=0.5,
        xref="paper",
        yref="paper",
        showarrow=False,
        font=dict(color=THEMES[theme]["muted"]),
    )
    return fig
