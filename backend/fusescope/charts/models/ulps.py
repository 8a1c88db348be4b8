"""Errors of one place counted in units in the last place: a histogram per execution mode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from fusescope.analysis.accuracy.errors import ulp_words
from fusescope.charts import axes, numbers, template
from fusescope.charts.colours import colour
from fusescope.charts.models import depth


def histogram(
    entries: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]],
    name: str,
    subtitle: str = "",
    theme: str = "light",
) -> go.Figure:
    """``entries``: (entry of an accuracy report, Errors as JSON) of the place ``name``, bars next to each
    other."""
    if not entries:
        return template.empty("No execution mode has this place.", theme)
    words = ulp_words()
    fig = template.figure("Error in units in the last place", template.join(subtitle, name), theme, 330)
    for entry, figures in entries:
        total = sum(figures["ulps"]) or 1
        shares = [100 * n / total for n in figures["ulps"]]
        fig.add_bar(
            x=words,
            y=shares,
            name=depth.label(entry),
            marker=dict(color=colour(entry["way"]), pattern=dict(shape=_pattern(entry["dtype"]))),
            hovertext=[
                f"<b>{depth.label(entry)}</b><br>{w} ulp of {entry['dtype']}: {n:,} of {total:,} elements "
                f"({numbers.three(s)} %)"
                for w, n, s in zip(words, figures["ulps"], shares, strict=True)
            ],
            hoverinfo="text",
        )
    fig.update_layout(
        barmode="group",
        bargap=0.2,
        showlegend=len(entries) > 1,
        height=fig.layout.height + 24 * -(-len(entries) // 4),
        margin=dict(b=60 + 24 * -(-len(entries) // 4)),
        legend=dict(
            orientation="h", y=0, yref="container", yanchor="bottom", x=0, xanchor="left", font=dict(size=11)
        ),
    )
    fig.update_xaxes(
        title_text="distance from the reference (ulp of the result's dtype)",
        type="category",
        tickangle=0,
        showgrid=False,
    )
    fig.update_yaxes(title_text="elements (%)", rangemode="tozero")
    axes.left(fig, ["100"])
    return fig


def _pattern(dtype: str) -> str:
    return {"float16": "/", "bfloat16": "x"}.get(dtype, "")
