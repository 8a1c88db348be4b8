"""The memory chart: bytes of one launch between SM, L1, L2 and DRAM, with hit rates and rates."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from fusescope.analysis.profile.memory_flow import Link
from fusescope.charts import numbers, template
from fusescope.charts.escape import label

READ, WRITTEN = "#0072B2", "#B75A92"
_WIDEST = 0.2  # of the height: the thickest arrow
_BOX, _HEAD = 0.2, 0.1  # half the width of a level's box, and the length of an arrow's head
_READ_AT, _WRITTEN_AT = 0.68, 0.18


def flow(
    links: Sequence[Link], ns: float | None, kernel: str = "", subtitle: str = "", theme: str = "light"
) -> go.Figure:
    """links of one launch, from the SM outwards; ns: its time under ncu, for rates (None: without)."""
    if not links:
        return template.empty(
            "The report counts no memory traffic (ncu --section MemoryWorkloadAnalysis_Tables does).", theme
        )
    c = template.THEMES[theme]
    fig = template.figure("Memory chart", template.join(label(kernel, 70), subtitle), theme, height=320)
    names = ["SM", *(link.level for link in links)]
    most = max(max(link.read, link.written) for link in links) or 1.0
    for n, name in enumerate(names):
        hit = links[n - 1].hit if n else None
        text = f"<b>{name}</b>" + (f"<br>hit<br>{numbers.percent(hit)}" if hit is not None else "")
        fig.add_shape(
            type="rect",
            x0=n - _BOX,
            x1=n + _BOX,
            y0=0,
            y1=1,
            line=dict(color=c["line"], width=1),
            fillcolor=c["grid"],
        )
        fig.add_annotation(x=n, y=0.5, text=text, showarrow=False, font=dict(size=13, color=c["ink"]))
    for n, link in enumerate(links):
        left, right = n + _BOX + 0.03, n + 1 - _BOX - 0.03
        for size, y, colour, begin, end in (
            (link.read, _READ_AT, READ, right, left),
            (link.written, _WRITTEN_AT, WRITTEN, left, right),
        ):
            width = max(0.008, _WIDEST * size / most)
            fig.add_shape(type="path", path=_arrow(begin, end, y, width), fillcolor=colour, line_width=0)
            rate = f"<br>{numbers.three(size / ns)} GB/s" if ns and size else ""
            fig.add_annotation(
                x=n + 0.5,
                y=y + max(width, 0.05) / 2 + 0.04,
                yanchor="bottom",
                showarrow=False,
                text=f"{'read' if colour == READ else 'written'}<br>{numbers.size(size)}{rate}",
                font=dict(size=11, color=c["ink"]),
            )
    fig.update_xaxes(range=[-0.3, len(names) - 0.7], visible=False)
    fig.update_yaxes(range=[-0.03, 1.15], visible=False)
    return fig


def _arrow(begin: float, end: float, y: float, width: float) -> str:
    """The outline of an arrow that points from ``begin`` to ``end``."""
    neck = end + _HEAD if end < begin else end - _HEAD
    half, wide = width / 2, width / 2 + 0.03
    points = [(begin, y - half), (neck, y - half), (neck, y - wide), (end, y)]
    points += [(neck, y + wide), (neck, y + half), (begin, y + half)]
    return "M " + " L ".join(f"{a:.4f},{b:.4f}" for a, b in points) + " Z"
