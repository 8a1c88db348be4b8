"""What Nsight Compute measured of each launch: speed of light by unit, and warp stall reasons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from fusescope.analysis.profile.verdict import HIGH
from fusescope.charts import numbers, template
from fusescope.charts.colours import SERIES
from fusescope.charts.escape import label, plain

UNITS = {
    "sm_percent": ("SM", SERIES[1]),
    "tensor_percent": ("tensor pipe", "#B75A92"),
    "memory_percent": ("memory", "#0072B2"),
    "dram_percent": ("DRAM", "#56A0C9"),
    "l2_percent": ("L2", "#5B6FB5"),
    "l1_percent": ("L1", "#7D8590"),
}
"""Column of ncu_kernels → its name and colour."""
MOST = 12


def speed_of_light(rows: Sequence[Mapping], subtitle: str = "", theme: str = "light") -> go.Figure:
    """A group of bars per launch, % of the unit's peak; rows of ncu_kernels, the first MOST of them."""
    shown = [(n, r) for n, r in enumerate(rows[:MOST]) if any(_known(r.get(k)) for k in UNITS)]
    if not shown:
        return template.empty("The report holds no throughput metrics (ncu --set basic has them).", theme)
    c = template.THEMES[theme]
    there = [k for k in UNITS if any(_known(r.get(k)) for _, r in shown)]
    fig = template.figure("Speed of light", subtitle, theme, height=170 + (22 * len(there) + 30) * len(shown))
    for key in there:
        word, colour = UNITS[key]
        values = [float(r[key]) if _known(r.get(key)) else None for _, r in shown]
        fig.add_bar(
            orientation="h",
            y=list(range(len(shown))),
            x=values,
            name=word,
            marker=dict(color=colour),
            text=["" if v is None else f"{word} {numbers.three(v)}" for v in values],
            textposition="outside",
            cliponaxis=False,
            textfont=dict(size=11),
            customdata=[plain(r["name"], 160) for _, r in shown],
            hovertemplate=f"<b>%{{customdata}}</b><br>{word}: %{{x:.3g}} %<extra></extra>",
        )
    fig.add_vline(x=HIGH, line=dict(color=c["line"], width=1, dash="dot"), layer="below")
    fig.add_annotation(
        x=HIGH,
        y=1,
        yref="paper",
        yanchor="bottom",
        showarrow=False,
        text=f"high utilisation from {HIGH:g} %",
        font=dict(size=11, color=c["muted"]),
    )
    fig.update_xaxes(
        range=[0, 112], tickvals=[0, 20, 40, 60, 80, 100], title_text="% of the unit's peak over the launch"
    )
    _name(fig, [f"{n}: {label(r['name'], 44)}" for n, r in shown], c["ink"])
    fig.update_layout(barmode="group", bargap=0.22)
    return fig


def stalls(
    rows: Sequence[Mapping], names: Mapping[int, str], subtitle: str = "", theme: str = "light"
) -> go.Figure:
    """rows of ncu_stalls; names: launch → kernel. One bar per launch of the shares of the eight most common
    reasons."""
    by: dict[str, dict[int, float]] = {}
    for row in rows:
        if row["launch"] in names and _known(row.get("share")):
            by.setdefault(row["reason"], {})[row["launch"]] = float(row["share"])
    launches = [n for n in names if any(n in found for found in by.values())][:MOST]
    if not launches:
        return template.empty(
            "The report holds no stall reasons (ncu --section WarpStateStats has them).", theme
        )
    common = sorted(by, key=lambda r: -sum(by[r].values()))[: len(SERIES)]
    rows_of_legend = -(-len(common) // 2)
    fig = template.figure(
        "Warp stall reasons", subtitle, theme, height=170 + 46 * len(launches) + 22 * rows_of_legend
    )
    for reason, colour in zip(common, SERIES, strict=False):
        text = reason.replace("_", " ")
        fig.add_bar(
            orientation="h",
            y=list(range(len(launches))),
            width=0.5,
            x=[100 * by[reason].get(n, 0) for n in launches],
            name=plain(text, 40),
            marker=dict(color=colour),
            customdata=[plain(names[n], 160) for n in launches],
            hovertemplate=f"<b>%{{customdata}}</b><br>{plain(text)}: %{{x:.3g}} %<extra></extra>",
        )
    below = dict(
        orientation="h", yref="container", y=0, yanchor="bottom", traceorder="normal"
    )  # under the axis
    fig.update_layout(barmode="stack", showlegend=True, legend=below, margin=dict(b=56 + 22 * rows_of_legend))
    fig.update_xaxes(title_text="% of warp states", range=[0, 100.5])
    _name(fig, [f"{n}: {label(names[n], 44)}" for n in launches], template.THEMES[theme]["ink"])
    return fig


def _name(fig: go.Figure, names: Sequence[str], colour: str) -> None:
    """The name of each group of bars above it, where it takes no width from them."""
    for n, name in enumerate(names):
        fig.add_annotation(
            x=0,
            xref="paper",
            xanchor="left",
            y=n - 0.44,
            yanchor="middle",
            showarrow=False,
            text=name,
            font=dict(size=12, color=colour),
        )
    fig.update_yaxes(range=[len(names) - 0.5, -0.62], visible=False)


def _known(value) -> bool:
    return value is not None and value == value
