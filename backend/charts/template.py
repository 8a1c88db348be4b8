"""The one look of all charts, in light and dark, and what they share: subtitle, ratio axes, hover, save-as-image settings."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable

import plotly.graph_objects as go

from backend.charts import numbers
from backend.core.records import Record, Run

THEMES = {
    "light": {"ink": "#1F2933", "muted": "#52606D", "grid": "#E4E7EB", "line": "#7B8794", "paper": "#FFFFFF"},
    "dark": {"ink": "#F0F2F5", "muted": "#AEB7C2", "grid": "#333A45", "line": "#8A94A3", "paper": "#0F1319"},
}
TOP = 66
"""Pixels above the plot for a title and one line under it."""
FONT = "'Source Sans 3', 'Source Sans Pro', 'Segoe UI', 'Helvetica Neue', Arial, sans-serif"
_NICE_RATIOS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 0.7, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000)
_MOST_TICKS = 7


def figure(title: str, subtitle: str = "", theme: str = "light", height: int = 380) -> go.Figure:
    """An empty figure in the common look; ``subtitle`` may have two lines (<br>). The paper has the page's colour, so that a saved image is as readable as the page."""
    c = THEMES[theme]
    axis = dict(
        gridcolor=c["grid"], linecolor=c["line"], zeroline=False, ticks="outside", ticklen=4, tickcolor=c["line"], automargin=True,
        title=dict(font=dict(size=12, color=c["muted"]), standoff=12),
    )  # fmt: skip
    lines = subtitle.count("<br>")
    layout = dict(
        template=None,
        title=dict(
            text=f"<b>{title}</b>" + (f"<br><span style='font-size:12px;color:{c['muted']}'>{subtitle}</span>" if subtitle else ""),
            x=0, xanchor="left", xref="container", y=1 - (26 + 8 * lines) / height, yanchor="middle", font=dict(size=16),
        ),
        font=dict(family=FONT, size=13, color=c["ink"]),
        paper_bgcolor=c["paper"], plot_bgcolor=c["paper"],
        margin=dict(l=8, r=16, t=TOP + 24 * lines, b=44), height=height,
        hoverlabel=dict(bgcolor=c["paper"], bordercolor=c["line"], font=dict(family=FONT, color=c["ink"], size=12), align="left"),
        xaxis=axis, yaxis=axis, showlegend=False, bargap=0.35,
        modebar=dict(bgcolor="rgba(0,0,0,0)", color=c["muted"], activecolor=c["ink"]),
    )  # fmt: skip
    return go.Figure(layout=layout)  # a third of the time that update_layout takes


def config(name: str, image: str = "png") -> dict:
    """plotly's display settings: the camera button saves ``name`` as PNG (twofold resolution) or SVG; nothing goes to a cloud."""
    return {
        "displaylogo": False,
        "responsive": True,
        "modeBarButtonsToRemove": ["lasso2d", "select2d", "autoScale2d"],
        "toImageButtonOptions": {"format": image, "filename": name, "scale": 2 if image == "png" else 1},
        "showSendToCloud": False,
    }


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

    A noisy machine gives intervals over many decades; drawn whole, they would press everything else into a line.
    """
    known = [v for v in middles if v and v > 0]
    if not known:
        return 1.0, 1.0
    low, high = min(known), max(known)
    ends = [v for v in bounds if v is not None]
    return max(min([low, *ends]), low / 4), min(max([high, *ends]), high * 4)


def ratio_axis(values: list[float | None], bounds: Iterable[float | None] = ()) -> dict:
    """A logarithmic axis around 1.0 that holds all values (and intervals, see ``within``), with ticks people use for ratios."""
    low, high = within([v for v in values if v] or [1.0], bounds)
    low, high = min(low, 0.8) / 1.08, max(high, 1.25) * 1.08
    inside = [t for t in _NICE_RATIOS if low <= t <= high]
    for fewer in ((0.9, 1.1), (0.8, 1.25, 1.5), (0.7, 3), (0.2, 0.05, 0.02, 20, 200), (0.5, 2, 5, 50, 500)):
        if len(inside) > _MOST_TICKS:  # wide ranges: the fine steps would overprint on a narrow page
            inside = [t for t in inside if t not in fewer]
    return dict(
        type="log", range=[math.log10(low), math.log10(high)], tickvals=inside, ticktext=[f"{t:g}×" for t in inside], tickangle=0
    )


def log_ticks(values: list[float]) -> dict:
    """A base-10 logarithmic axis with a tick on each value measured, as sweeps over powers of two want."""
    known = sorted({v for v in values if v and v > 0})
    return (
        dict(type="log", tickvals=known, ticktext=[f"{v:,.0f}".replace(",", " ") for v in known]) if known else dict(type="log")
    )


def plain_log(low: float, high: float) -> dict:
    """A logarithmic axis from low to high whose ticks are written out: 1-2-5 steps, or even steps where the range is less than a factor of three."""
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
    return dict(type="log", range=view, tickvals=inside, ticktext=[numbers.three(s) for s in inside], tickangle=0)


def case_words(record: Record) -> str:
    """A case as "batch=8, seq=512, mask=bigbird": what a person would type; what follows from the rest is left out."""
    case = record.case
    follows = {"seq_k": "seq", "kv_heads": "heads"}
    told = {k: v for k, v in case.items() if v not in (None, "none") and (k not in follows or v != case.get(follows[k]))}
    return ", ".join(f"{k}={v}" for k, v in told.items())


def empty(text: str, theme: str = "light", height: int = 160) -> go.Figure:
    """A figure that says in one sentence why there is nothing to draw."""
    fig = figure("", "", theme, height)
    fig.update_layout(xaxis=dict(visible=False), yaxis=dict(visible=False), margin=dict(l=8, r=8, t=8, b=8))
    fig.add_annotation(
        text=text, x=0.5, y=0.5, xref="paper", yref="paper", showarrow=False, font=dict(color=THEMES[theme]["muted"])
    )
    return fig
