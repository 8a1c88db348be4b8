"""Collectives over ranks: arrival skew over time, which rank delays which, and how much of each is hidden."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import plotly.graph_objects as go

from fusescope.charts import axes, numbers, template
from fusescope.charts.colours import SERIES
from fusescope.charts.escape import label
from fusescope.charts.ranks.words import PARTS, legend

MOST = 4000
"""Points; of more collectives those with the largest skew are drawn."""


def skew(rows: Sequence[Mapping], zero: int, subtitle: str = "", theme: str = "light") -> go.Figure:
    """rows: of the table collectives, those that are plausible; zero: ns of the first activity."""
    rows = [r for r in rows if r["plausible"]]
    if not rows:
        return template.empty("No collective was matched across ranks.", theme)
    shown = sorted(rows, key=lambda r: -r["skew_ns"])[:MOST]
    more = f"the {MOST:,} largest of {len(rows):,}" if len(rows) > MOST else ""
    fig = template.figure("Arrival skew of each collective", template.join(subtitle, more), theme, height=360)
    unit, factor = numbers.time_unit([max(r["skew_ns"] for r in shown) / 1e6])
    when, scale = numbers.time_unit([max(r["last_ns"] - zero for r in shown) / 1e6])
    names = list(dict.fromkeys(r["name"] for r in shown))
    for n, name in enumerate(names):
        mine = [r for r in shown if r["name"] == name]
        fig.add_scatter(
            x=[(r["last_ns"] - zero) / 1e6 * scale for r in mine],
            y=[r["skew_ns"] / 1e6 * factor for r in mine],
            mode="markers",
            name=label(name, 24),
            marker=dict(color=SERIES[n % len(SERIES)], size=6, opacity=0.75),
            customdata=[[r["last_rank"], r["ranks"]] for r in mine],
            hovertemplate=f"{label(name, 40)}<br>skew %{{y:.4g}} {unit} over %{{customdata[1]}} ranks<br>"
            "last: rank %{customdata[0]}<extra></extra>",
        )
    fig.update_layout(showlegend=True, legend=legend(fig.layout.height))
    fig.update_xaxes(title_text=f"time ({when})")
    fig.update_yaxes(title_text=f"first to last arrival ({unit})", rangemode="tozero")
    axes.left(fig)
    return fig


def waits(rows: Sequence[Mapping], subtitle: str = "", theme: str = "light", most: int = 32) -> go.Figure:
    """What each rank alone held the others up, and what it waited for others; rows of rank_time."""
    shown = sorted(rows, key=lambda r: -max(r["held_up_ns"], r["wait_ns"]))[:most]
    shown = sorted(shown, key=lambda r: r["rank"])
    if not any(r["collectives"] for r in rows):
        return template.empty("No collective was matched across ranks.", theme)
    more = f"{most} of {len(rows)} ranks" if len(rows) > most else ""
    fig = template.figure(
        "Who waits for whom", template.join(subtitle, more), theme, height=200 + 30 * len(shown)
    )
    unit, factor = numbers.time_unit([max(r["held_up_ns"], r["wait_ns"]) / 1e6 for r in shown])
    series = (
        ("held the others up, alone", SERIES[0], [r["held_up_ns"] for r in shown]),
        ("waited for others", "#B0B7BF", [r["wait_ns"] for r in shown]),
    )
    _bars(fig, [f"rank {r['rank']}" for r in shown], series, unit, factor)
    fig.update_layout(barmode="group")
    fig.update_xaxes(title_text=f"time over all collectives ({unit})")
    return fig


def overlap(rows: Sequence[Mapping], subtitle: str = "", theme: str = "light", most: int = 20) -> go.Figure:
    """rows: of ``analysis.ranks.compared.kinds``."""
    shown = [r for r in rows if r["total_ns"]][:most]
    if not shown:
        return template.empty("No collective was matched across ranks.", theme)
    fig = template.figure(
        "Overlap with compute, by collective", subtitle, theme, height=190 + 30 * len(shown)
    )
    unit, factor = numbers.time_unit([r["total_ns"] / 1e6 for r in shown])
    series = (
        (*PARTS["overlapped_ns"], [r["total_ns"] - r["exposed_ns"] for r in shown]),
        (*PARTS["exposed_ns"], [r["exposed_ns"] for r in shown]),
    )
    _bars(fig, [label(r["name"], 24) for r in shown], series, unit, factor)
    fig.update_layout(barmode="stack")
    fig.update_xaxes(title_text=f"time over all ranks ({unit})")
    return fig


def _bars(
    fig: go.Figure,
    rows: Sequence[str],
    series: Iterable[tuple[str, str, Sequence[int]]],
    unit: str,
    factor: float,
) -> None:
    """A horizontal bar per row and series (name, colour, ns per row), with a legend; the first row on top."""
    for name, colour, values in series:
        fig.add_bar(
            orientation="h",
            y=rows,
            x=[ns / 1e6 * factor for ns in values],
            name=name,
            marker=dict(color=colour),
            hovertemplate=f"%{{y}}<br>{name}: %{{x:.4g}} {unit}<extra></extra>",
        )
    fig.update_layout(showlegend=True, legend=legend(fig.layout.height))
    axes.downwards(fig, rows)
    fig.update_xaxes(rangemode="tozero")
