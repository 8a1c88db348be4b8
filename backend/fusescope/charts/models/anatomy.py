"""Where a model's parameters are: nested areas in proportion to exact counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from fusescope.charts import numbers, template

_BLUES = ("#0072B2", "#3C8FCB", "#7FB3DB", "#B9D6EC", "#DCEBF6")


def areas(nodes: Sequence[Any], title: str, subtitle: str = "", theme: str = "light") -> go.Figure:
    """``nodes``: name (a path), parent, count, label; the whole first. A click on an area looks into it."""
    if not nodes:
        return template.empty("This model has no parameters.", theme)
    c = template.THEMES[theme]
    total = nodes[0].count
    fig = template.figure(title, subtitle, theme, 470)
    depths = [n.name.count("/") for n in nodes]
    colours = [c["grid"] if d == 0 else _BLUES[min(d, len(_BLUES)) - 1] for d in depths]
    fig.add_treemap(
        ids=[n.name for n in nodes],
        labels=[n.label for n in nodes],
        parents=[n.parent for n in nodes],
        values=[n.count for n in nodes],
        branchvalues="total",
        sort=False,
        maxdepth=4,
        text=[f"{n.count:,}" for n in nodes],
        texttemplate="%{label}<br>%{text}",
        hovertext=[
            f"<b>{n.name}</b><br>{n.count:,} parameters<br>{numbers.percent(n.count / total)} of all"
            for n in nodes
        ],
        hoverinfo="text",
        marker=dict(colors=colours, line=dict(width=1, color=c["paper"])),
        tiling=dict(pad=2),
        pathbar=dict(visible=True, thickness=22),
        textfont=dict(color=[c["ink"] if d == 0 else "#FFFFFF" if d == 1 else "#10202C" for d in depths]),
    )
    fig.update_layout(margin=dict(l=4, r=4, b=4))
    return fig
