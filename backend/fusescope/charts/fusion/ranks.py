"""All measured fusion schemes from fastest to slowest, with the baselines among them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import plotly.graph_objects as go

from fusescope.charts import axes, numbers, template
from fusescope.charts.colours import OURS, SERIES, colour

PLAIN = SERIES[0]
"""Schemes with the hand-written attention, and without."""
_FAR = 5  # times beyond the schemes
MANY = 2000  # schemes
NAMES = {"compile": "torch.compile", "compile_sdpa": "torch.compile + SDPA", "hand_fused": "hand-fused"}
"""Baselines whose name in the records is not the one that people read."""
BITS = "%{customdata:016b}"
"""In a hover text, the code of a mark whose customdata is of ``as_numbers``."""


def ranks(
    times: Mapping[str, float], baselines: Mapping[str, float], subtitle: str = "", theme: str = "light"
) -> go.Figure:
    """``times``: ms by code of 16 bits; ``baselines``: ms by name, drawn as lines."""
    if not times:
        return template.empty("No scheme has a time yet.", theme)
    unit, factor = numbers.time_unit([*times.values(), *baselines.values()])
    order = sorted(times, key=times.get)
    codes, ms = as_numbers(order), np.array([times[code] for code in order])
    baselines, further = near(times.values(), baselines)
    fig = template.figure(
        "Schemes by time", f"{subtitle}<br>{len(order):,} distinct schemes{further}", theme, height=420
    )
    for attention, hue, label in ((True, OURS, "hand-written attention"), (False, PLAIN, "without it")):
        at = [i for i, code in enumerate(order) if (code[0] == "1") is attention]
        if at:
            add = fig.add_scattergl if len(order) > MANY else fig.add_scatter  # SVG is slow with many symbols
            add(
                x=np.array(at) + 1,
                y=ms[at] * factor,
                mode="markers",
                name=label,
                customdata=codes[at],
                marker=dict(
                    color=hue,
                    size=6 if len(order) <= MANY else 4,
                    symbol="circle" if attention else "square",
                ),
                hovertemplate=f"<b>{BITS}</b><br>%{{y:.3g}} {unit}, rank %{{x}}<extra></extra>",
            )
    every = [*times.values(), *baselines.values()]
    low, high = min(every) * factor, max(every) * factor
    baseline_lines(fig, {n: ms * factor for n, ms in baselines.items()}, low, high, theme)
    fig.update_xaxes(title_text="rank, fastest first", range=[0, len(order) * 1.02 + 1])
    fig.update_yaxes(**axes.log(low * 0.97, high * 1.03), title_text=f"layer time ({unit}), log")
    fig.update_layout(
        margin=dict(r=150),
        showlegend=True,
        legend=dict(orientation="h", x=0, yanchor="top", y=-0.16),
    )
    axes.room(fig, ["0.0001"], bottom=84)
    return fig


def as_numbers(codes: Iterable[str]) -> np.ndarray:
    """Codes of 16 bits as numbers: of thousands of texts a figure takes many times as long to be copied and
    sent."""
    return np.array([int(code, 2) for code in codes], dtype=np.uint16)


def near(schemes: Iterable[float], baselines: Mapping[str, float]) -> tuple[dict[str, float], str]:
    """(the baselines that fit on an axis with these times, a text for the others): one that is many times
    slower would flatten the schemes into a line."""
    known = list(schemes)
    low, high = min(known) / _FAR, max(known) * _FAR
    shown = {name: ms for name, ms in baselines.items() if low <= ms <= high}
    rest = [f"{named(name)} {numbers.time(ms)}" for name, ms in baselines.items() if name not in shown]
    return shown, f"; off the chart: {', '.join(rest)}" if rest else ""


def baseline_lines(fig: go.Figure, values: Mapping[str, float], low: float, high: float, theme: str) -> None:
    """A dashed line a baseline with its name at the right edge, on a logarithmic axis from low to high."""
    for name, value in values.items():
        fig.add_hline(y=value, line=dict(color=colour(name), width=1.6, dash="dash"))
    if values and high > low:
        axes.end_labels(fig, [(v, name) for name, v in values.items()], low, high, mark="┅", names=NAMES)


def named(impl: str) -> str:
    """A scheme's code, or a baseline's name as people read it."""
    return NAMES.get(impl, impl)
