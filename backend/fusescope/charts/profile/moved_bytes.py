"""The roofline of a profiled call: at its minimum traffic, and at the traffic of each level of memory that
Nsight Compute measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from fusescope.analysis.roofline import Ceiling, attainable
from fusescope.charts import axes, numbers, template
from fusescope.charts.colours import SERIES
from fusescope.charts.escape import plain


@dataclass(frozen=True)
class Point:
    """flop and bytes of one call, its time in ns; what: a key of MARKS; name: whose call."""

    name: str
    what: str
    flop: float
    bytes: float
    ns: float

    @property
    def intensity(self) -> float:
        """FLOP per byte."""
        return self.flop / self.bytes

    @property
    def tflops(self) -> float:
        return self.flop / self.ns / 1e3


MARKS = {
    "minimum": ("circle", SERIES[1]),
    "actual": ("diamond", "#0072B2"),
    "L2": ("square", "#5B6FB5"),
    "L1": ("triangle-up", "#7D8590"),
}
"""Traffic → its mark: compulsory, of DRAM, between L2 and the SMs, between L1 and the load/store units."""
_SIDES = {"minimum": "top center", "actual": "bottom center", "L2": "bottom center", "L1": "top center"}


def plot(
    points: Sequence[Point], ceilings: Mapping[str, Ceiling], subtitle: str = "", theme: str = "light"
) -> go.Figure:
    """points on log-log axes under ceilings, named by where they are from ("measured here", "data sheet")."""
    good = [p for p in points if p.flop > 0 and p.bytes > 0 and p.ns > 0]
    if not good:
        return template.empty(
            "FLOP, traffic and time are needed to place a call; one of them is unknown.", theme
        )
    c = template.THEMES[theme]
    fig = template.figure("Roofline", subtitle, theme, height=470)
    ridges = [r.ridge for r in ceilings.values()]
    low, high = min([p.intensity for p in good] + ridges) / 8, max([p.intensity for p in good] + ridges) * 8
    rates = [p.tflops for p in good] + [r.tflops for r in ceilings.values()]
    bottom = min([p.tflops for p in good] + [low * r.bandwidth_gbps / 1e3 for r in ceilings.values()]) / 5
    top = max(rates) * 3
    x = np.geomspace(low, high, 80)
    for n, (name, roof) in enumerate(ceilings.items()):
        dash, ink = ("solid", c["ink"]) if n == 0 else ("dot", c["muted"])
        fig.add_scatter(
            x=x,
            y=np.minimum(roof.tflops, x * roof.bandwidth_gbps / 1e3),
            mode="lines",
            line=dict(color=ink, width=1.7, dash=dash),
            hoverinfo="skip",
        )
        fig.add_annotation(
            x=np.log10(high),
            y=np.log10(roof.tflops),
            xanchor="right",
            yanchor="bottom" if n else "top",
            showarrow=False,
            text=(
                f"{plain(name)}: {numbers.three(roof.bandwidth_gbps)} GB/s, {numbers.three(roof.tflops)} "
                "TFLOP/s"
            ),
            font=dict(size=11.5, color=c["muted"]),
        )
    first = next(iter(ceilings.values()), None)
    for p in good:
        symbol, colour = MARKS[p.what]
        share = (
            ""
            if first is None
            else f"<br>{numbers.percent(p.tflops / attainable(p.intensity, first))} of the first ceiling "
            "above it"
        )
        fig.add_scatter(
            x=[p.intensity],
            y=[p.tflops],
            mode="markers+text",
            text=[p.what],
            textposition=_SIDES[p.what],
            textfont=dict(size=12),
            marker=dict(size=13, symbol=symbol, color=colour, line=dict(color=c["paper"], width=1)),
            hovertemplate=f"<b>{plain(p.name, 120)}</b>, {p.what} traffic<br>{numbers.size(p.bytes)}, "
            f"{numbers.three(p.flop / 1e9)} GFLOP in "
            f"{numbers.time(p.ns / 1e6)}<br>{numbers.three(p.tflops)} TFLOP/s at "
            f"{numbers.three(p.intensity)} FLOP/B, {numbers.three(p.bytes / p.ns)} "
            f"GB/s{share}<extra></extra>",
        )
    decades = dict(type="log", dtick=1, exponentformat="none")
    fig.update_xaxes(**decades, range=[np.log10(low), np.log10(high)], title_text="FLOP per byte, log")
    fig.update_yaxes(**decades, range=[np.log10(bottom), np.log10(top)], title_text="TFLOP/s, log")
    axes.left(fig, ["1,000"])
    return fig
