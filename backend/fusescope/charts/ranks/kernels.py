"""The same kernel on every rank: its time against the median rank's, as a map."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from fusescope.analysis.kernel_names import base
from fusescope.charts import axes, numbers, template
from fusescope.charts.escape import label

MOST = 24
"""Kernels, those first that differ most."""
_RANKS = 64


def heat(
    rows: Sequence[Mapping], ranks: Sequence[int], subtitle: str = "", theme: str = "light"
) -> go.Figure:
    """rows: of ``analysis.ranks.compared.kernels``; ranks: those that its total_ns are of, in order."""
    shown = [r for r in rows if r["median_ns"] and r["kind"] != "communication"][:MOST]
    if not shown:
        return template.empty("No kernel but collectives runs on more than half of the ranks.", theme)
    cut = len(ranks) > _RANKS
    more = f"the first {_RANKS} of {len(ranks)} ranks" if cut else ""
    places = range(min(len(ranks), _RANKS))
    ratios = [[_ratio(r, n) for n in places] for r in shown]
    texts = [[_time(r, n) for n in places] for r in shown]
    fig = template.figure(
        "Kernel time against the median rank",
        template.join(subtitle, more),
        theme,
        height=170 + 24 * len(shown),
    )
    scale = [
        (at, colour) for at, colour in zip((0.0, 0.5, 1.0), [c for _, c in template.RATIO_SCALE[theme]][::-1])
    ]
    names = [f"{n + 1}  {label(base(r['name']), 30)}" for n, r in enumerate(shown)]
    fig.add_heatmap(
        z=ratios,
        x=[str(ranks[n]) for n in places],
        y=names,
        customdata=texts,
        zmin=0.5,
        zmid=1.0,
        zmax=1.5,
        colorscale=scale,
        xgap=1,
        ygap=1,
        colorbar=dict(title=dict(text="× median", side="right"), thickness=12, tickvals=[0.5, 1.0, 1.5]),
        hovertemplate="rank %{x}<br>%{y}<br>%{customdata}, %{z:.3g}× the median<extra></extra>",
        hoverongaps=False,
    )
    fig.update_xaxes(title_text="rank", type="category", showgrid=False)
    axes.downwards(fig, names, showgrid=False)
    return fig


def _ratio(row: Mapping, n: int) -> float | None:
    ns = row["total_ns"][n]
    return None if ns is None else ns / row["median_ns"]


def _time(row: Mapping, n: int) -> str:
    ns = row["total_ns"][n]
    return "not run" if ns is None else numbers.time(ns / 1e6)
