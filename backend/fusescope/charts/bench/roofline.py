"""Each result under the device's measured ceilings: arithmetic intensity against effective rate,
log-log."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import plotly.graph_objects as go

from fusescope.analysis import roofline as analysis
from fusescope.charts import axes, numbers, template
from fusescope.charts.bench.speedup import hover
from fusescope.charts.colours import colour, marker
from fusescope.core.records import Record


def plot(
    records: list[Record],
    ceilings: Mapping,
    baseline: str,
    unit: str = "matrix",
    subtitle: str = "",
    theme: str = "light",
) -> go.Figure:
    """Records with a rate and a bandwidth as dots; slanted ceiling = measured copy bandwidth, flat = measured
    rate of the dtype.

    ``ceilings``: {"copy_gbps", "l2_gbps", "matrix_tflops": {dtype}, "vector_tflops": {dtype}} as a run's
    environment carries them; ``unit`` ("matrix" or "vector") names the flat ceiling that applies. Rates count
    live work (effective), so a sparse kernel is not credited for what it skipped.
    """
    copy = ceilings.get("copy_gbps")
    flat = (ceilings.get(f"{unit}_tflops") or {}).get(records[0].dtype) if records else None
    roof = analysis.Ceiling(copy or math.inf, flat or math.inf)  # an unmeasured ceiling does not limit
    placed = [(r, p) for r in records if r.status == "ok" and (p := analysis.place(r, roof))]
    if not placed:
        return template.empty("No result has both a FLOP rate and a bandwidth.", theme)
    c = template.THEMES[theme]
    fig = template.figure(
        "Roofline",
        template.join(subtitle, "measured ceilings, effective FLOP"),
        theme,
        height=460,
    )
    dtype = records[0].dtype
    intensity, rates = [p.intensity for _, p in placed], [p.tflops for _, p in placed]
    l2 = ceilings.get("l2_gbps")
    other = "vector" if unit == "matrix" else "matrix"
    second = (ceilings.get(f"{other}_tflops") or {}).get(dtype)
    if flat and second and abs(second / flat - 1) < 0.02:
        second = None  # a CPU has one rate
    known = [*intensity, *([roof.ridge] if flat and copy else [])]
    low, high = min(known) / 10, max(known) * 6
    x = np.geomspace(low, high, 60)
    top = flat or second or max(rates) * 2
    if copy:
        _line(
            fig, x, np.minimum(x * copy / 1e3, top), c["ink"], f"copy {numbers.three(copy)} GB/s", "solid", c
        )
    if l2:
        _line(fig, x, np.minimum(x * l2 / 1e3, top), c["muted"], f"L2 {numbers.three(l2)} GB/s", "dot", c)
    for value, name, dash in ((flat, unit, "solid"), (second, other, "dot")):
        if value:
            start = max(low, analysis.Ceiling(copy, value).ridge) if copy else low
            fig.add_scatter(
                x=[start, high],
                y=[value, value],
                mode="lines",
                line=dict(color=c["ink"] if dash == "solid" else c["muted"], width=1.6, dash=dash),
                hoverinfo="skip",
            )
            rate = f"{name} {dtype + ' ' if value == flat else ''}{numbers.three(value)} TFLOP/s"
            place = dict(xanchor="right", yanchor="bottom")
            axes.note(fig, rate, np.log10(high), np.log10(value), 11.5, c["muted"], **place)
    for r, p in placed:
        share = f"<br>{numbers.percent(p.share)} of the ceiling" if math.isfinite(p.attainable) else ""
        fig.add_scatter(
            x=[p.intensity],
            y=[p.tflops],
            mode="markers",
            marker=dict(
                color=colour(r.impl), symbol=marker(r.impl), size=11, line=dict(color=c["paper"], width=1)
            ),
            hovertemplate=f"{hover(r, baseline)}<br>{numbers.three(p.tflops)} TFLOP/s at "
            f"{numbers.three(p.intensity)} FLOP/B{share}<extra></extra>",
        )
    if not copy and not flat:
        text = "ceilings n/a: this run did not measure them"
        axes.note(fig, text, 0, 1.02, colour=c["muted"], xref="paper", yref="paper", xanchor="left")
    fig.update_xaxes(
        type="log",
        exponentformat="none",
        dtick=1,
        title_text="arithmetic intensity (FLOP per byte of minimum traffic), log",
    )
    fig.update_yaxes(type="log", exponentformat="none", title_text="effective TFLOP/s, log", dtick=1)
    # Explicit ranges: a label just outside would not be drawn.
    bottom, most = min([*rates, low * copy / 1e3 if copy else min(rates)]) / 2, max([*rates, top]) * 1.9
    fig.update_xaxes(range=[np.log10(low) - 0.02, np.log10(high) + 0.02])
    fig.update_yaxes(range=[np.log10(bottom), np.log10(most)])
    best: dict[str, float] = {}
    for r, p in placed:
        best[r.impl] = max(best.get(r.impl, 0.0), p.tflops)
    axes.end_labels(fig, [(rate, impl) for impl, rate in best.items()], bottom, most)
    axes.left(fig, ["1,000"])
    fig.update_layout(margin=dict(r=132))
    return fig


def _line(fig: go.Figure, x, y, ink: str, name: str, dash: str, c: dict) -> None:
    fig.add_scatter(x=x, y=y, mode="lines", line=dict(color=ink, width=1.6, dash=dash), hoverinfo="skip")
    # on the slope: text left of a point is above the line, right of it below
    at = int(np.argmax(y >= y[-1])) * (9 if dash == "dot" else 6) // 10
    left = dict(xanchor="right", yanchor="bottom", xshift=-4, yshift=-2)
    side = left if dash == "dot" and at > 10 else dict(xanchor="left", yanchor="top", xshift=6, yshift=2)
    axes.note(fig, name, np.log10(x[at]), np.log10(y[at]), 11.5, c["muted"], **side)
