"""Best time so far over the number of measured schemes: how a search is compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from fusescope.charts import axes, numbers, template
from fusescope.charts.colours import SERIES
from fusescope.charts.fusion.ranks import MANY, baseline_lines, near

_COLOURS = {
    "guided": SERIES[1],
    "additive": SERIES[5],
    "evolutionary": "#0072B2",
    "random": "#7D8590",
    "exhaustive": "#5B6FB5",
}


def best_so_far(
    tracks: Mapping[str, Sequence[tuple[int, float, float]]],
    baselines: Mapping[str, float],
    subtitle: str = "",
    theme: str = "light",
    target: float | None = None,
) -> go.Figure:
    """``tracks``: strategy → (number of the evaluation from 1, its ms or NaN where it failed, best ms so
    far). ``target``: the best there is, where it is known, drawn with the line 3 % above it."""
    known = [ms for track in tracks.values() for _, one, best in track for ms in (one, best) if ms == ms]
    if not known:
        return template.empty("No scheme has a time yet.", theme)
    baselines, further = near(known, baselines)
    every = [*known, *baselines.values(), *([target] if target else [])]
    unit, factor = numbers.time_unit(every)
    fig = template.figure("Best so far", f"{subtitle}{further}", theme, height=400)
    single = len(tracks) == 1
    for name, track in tracks.items():
        colour = _COLOURS.get(name, "#B75A92")
        if single:
            add = fig.add_scattergl if len(track) > MANY else fig.add_scatter
            add(
                x=[n for n, _, _ in track],
                y=[ms * factor for _, ms, _ in track],
                mode="markers",
                name="each scheme",
                marker=dict(color=colour, size=5, opacity=0.45),
                hovertemplate="evaluation %{x}: %{y:.3g} " + unit + "<extra></extra>",
            )
        steps = [
            (n, best) for (n, _, best), (_, _, before) in zip(track, [(0, 0, None), *track]) if best != before
        ]
        steps += [(n, best) for n, _, best in track[-1:]]  # to the end of the axis
        fig.add_scatter(
            x=[n for n, _ in steps],
            y=[best * factor for _, best in steps],
            mode="lines",
            name=name,
            line=dict(color=colour, width=2.6, shape="hv"),
            hovertemplate=name + ", %{x}: %{y:.3g} " + unit + "<extra></extra>",
        )
    low, high = min(every) * factor, max(every) * factor
    baseline_lines(fig, {n: ms * factor for n, ms in baselines.items()}, low, high, theme)
    if target:
        lines = {"best scheme": target * factor, "3 % slower": 1.03 * target * factor}
        baseline_lines(fig, lines, low, high, theme)
    fig.update_xaxes(title_text="measured schemes", rangemode="tozero")
    fig.update_yaxes(**axes.log(low * 0.97, high * 1.03), title_text=f"layer time ({unit}), log")
    axes.left(fig, fig.layout.yaxis.ticktext)
    fig.update_layout(
        margin=dict(r=150),
        showlegend=not single,
        legend=dict(x=0.98, y=0.98, xanchor="right", bgcolor="rgba(0,0,0,0)"),
    )
    return fig
