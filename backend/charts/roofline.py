"""Where each result stands under the device's measured ceilings: arithmetic intensity against effective rate, log-log."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import plotly.graph_objects as go

from backend.charts import numbers, template
from backend.charts.colours import colour, short
from backend.charts.speedup import hover
from backend.core.records import Record


def plot(
    records: list[Record], ceilings: Mapping, baseline: str, unit: str = "matrix", subtitle: str = "", theme: str = "light"
) -> go.Figure:
    """Records with a rate and a bandwidth as dots; slanted ceiling = measured copy bandwidth, flat = measured rate of the dtype.

    ``ceilings``: {"copy_gbps", "l2_gbps", "matrix_tflops": {dtype}, "vector_tflops": {dtype}} as a run's environment carries
    them; ``unit`` ("matrix" or "vector") names the flat ceiling that applies. Rates count live work (effective), so a sparse
    kernel is not credited for what it skipped.
    """
    rows = [r for r in records if r.status == "ok" and r.tflops and r.tflops.effective and r.gbps]
    if not rows:
        return template.empty("No record has both a FLOP rate and a bandwidth to place.", theme)
    c = template.THEMES[theme]
    fig = template.figure(
        "Roofline", " · ".join(p for p in (subtitle, "measured ceilings, effective FLOP") if p), theme, height=460
    )
    intensity = [r.tflops.effective * 1e3 / r.gbps for r in rows]
    rates = [r.tflops.effective for r in rows]
    copy = ceilings.get("copy_gbps")
    l2 = ceilings.get("l2_gbps")
    flat = (ceilings.get(f"{unit}_tflops") or {}).get(rows[0].dtype)
    other = "vector" if unit == "matrix" else "matrix"
    second = (ceilings.get(f"{other}_tflops") or {}).get(rows[0].dtype)
    if flat and second and abs(second / flat - 1) < 0.02:
        second = None  # a CPU has one rate; its name twice would overprint
    ridge = flat * 1e3 / copy if flat and copy else None
    low = min([*intensity, ridge or min(intensity)]) / 4
    high = max([*intensity, ridge or max(intensity)]) * 6
    x = np.geomspace(low, high, 60)
    top = flat or second or max(rates) * 2
    if copy:
        _line(fig, x, np.minimum(x * copy / 1e3, top), c["ink"], f"copy {numbers.three(copy)} GB/s", "solid", c)
    if l2:
        _line(fig, x, np.minimum(x * l2 / 1e3, top), c["muted"], f"L2 {numbers.three(l2)} GB/s", "dot", c)
    for value, name, dash in ((flat, unit, "solid"), (second, other, "dot")):
        if value:
            start = max(low, value * 1e3 / copy) if copy else low
            fig.add_scatter(
                x=[start, high],
                y=[value, value],
                mode="lines",
                line=dict(color=c["ink"] if dash == "solid" else c["muted"], width=1.6, dash=dash),
                hoverinfo="skip",
            )
            fig.add_annotation(
                x=np.log10(high), y=np.log10(value), xanchor="right", yanchor="bottom", showarrow=False,
                text=f"{name} {rows[0].dtype} {numbers.three(value)} TFLOP/s", font=dict(size=11.5, color=c["muted"]),
            )  # fmt: skip
    for r, ai, rate in zip(rows, intensity, rates, strict=True):
        limit = min(ai * copy / 1e3 if copy else np.inf, top if flat else np.inf)
        share = f"<br>{numbers.percent(rate / limit)} of the ceiling above it" if np.isfinite(limit) else ""
        fig.add_scatter(
            x=[ai], y=[rate], mode="markers", marker=dict(color=colour(r.impl), size=11, line=dict(color=c["paper"], width=1)),
            hovertemplate=f"{hover(r, baseline)}<br>{numbers.three(rate)} TFLOP/s at {numbers.three(ai)} FLOP/B{share}<extra></extra>",
        )  # fmt: skip
    _names(fig, rows, intensity, rates)
    if not copy and not flat:
        fig.add_annotation(
            x=0,
            y=1.02,
            xref="paper",
            yref="paper",
            xanchor="left",
            showarrow=False,
            text="ceilings n/a: this run did not measure them",
            font=dict(color=c["muted"]),
        )
    fig.update_xaxes(
        type="log",
        exponentformat="none",
        dtick=1,
        title_text="arithmetic intensity (FLOP per byte of least traffic), log",
    )
    fig.update_yaxes(type="log", exponentformat="none", title_text="effective TFLOP/s, log", dtick=1)
    # Ranges are given: a ceiling's name stands at the very edge, and an anchor a hair outside would not be drawn.
    fig.update_xaxes(range=[np.log10(low) - 0.02, np.log10(high) + 0.02])
    fig.update_yaxes(
        range=[np.log10(min([*rates, low * copy / 1e3 if copy else min(rates)]) / 2), np.log10(max([*rates, top]) * 1.9)]
    )
    return fig


def _line(fig: go.Figure, x, y, ink: str, name: str, dash: str, c: dict) -> None:
    fig.add_scatter(x=x, y=y, mode="lines", line=dict(color=ink, width=1.6, dash=dash), hoverinfo="skip")
    at = int(np.argmax(y >= y[-1])) * 2 // 3  # on the slope: text to the left of a point runs above the line, to the right below
    left = dict(xanchor="right", yanchor="bottom", xshift=-4, yshift=-2)
    side = left if dash == "dot" and at > 10 else dict(xanchor="left", yanchor="top", xshift=6, yshift=2)
    fig.add_annotation(
        x=np.log10(x[at]), y=np.log10(y[at]), showarrow=False, text=name, **side,
        font=dict(size=11.5, color=c["muted"]),
    )  # fmt: skip


def _names(fig: go.Figure, rows: list[Record], intensity: list[float], rates: list[float]) -> None:
    """Each implementation's name beside its fastest point, pushed down where names would overprint."""
    best: dict[str, tuple[float, float]] = {}
    for r, ai, rate in zip(rows, intensity, rates, strict=True):
        best[r.impl] = max(best.get(r.impl, (0.0, ai)), (rate, ai))
    placed: list[tuple[float, float]] = []
    for impl, (rate, ai) in sorted(best.items(), key=lambda item: -item[1][0]):
        x, y = np.log10(ai), np.log10(rate)
        for px, py in placed:
            if abs(px - x) < 0.5:
                y = min(y, py - 0.14)
        placed.append((x, y))
        fig.add_annotation(
            x=x, y=y, xanchor="left", xshift=9, showarrow=False, font=dict(size=11.5),
            text=f"<span style='color:{colour(impl)}'>●</span> {short(impl)[:24]}",
        )  # fmt: skip
