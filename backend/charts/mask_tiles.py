"""How much of a mask a kernel works on that skips tiles, by the side of the tile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from backend.charts import template

_COLOURS = ("#0072B2", "#D55E00")


def executed(shares: Mapping[str, Sequence[float]], densities: Mapping[str, float], sides: Sequence[int], subtitle: str = "",
             theme: str = "light") -> go.Figure:  # fmt: skip
    """Per mask a curve: share of elements in live tiles over the tile's side; the dashed line is the share that is kept."""
    c = template.THEMES[theme]
    fig = template.figure("Work that remains by tile size", subtitle, theme, 340)
    for (name, values), colour in zip(shares.items(), _COLOURS):
        fig.add_scatter(
            x=list(sides), y=[100 * v for v in values], mode="lines+markers", name=name, line=dict(color=colour, width=2.6),
            marker=dict(size=8), hovertemplate=f"{name}<br>tiles of %{{x}}: %{{y:.3g}} % of the elements<extra></extra>",
        )  # fmt: skip
        fig.add_hline(y=100 * densities[name], line=dict(color=colour, width=1.3, dash="dash"))
        fig.add_annotation(x=1, xref="paper", xanchor="left", xshift=8, y=100 * values[-1], showarrow=False, font=dict(size=12),
                           text=f"<span style='color:{colour}'>━</span> {name[:18]}")  # fmt: skip
    fig.add_annotation(x=0, xref="paper", xanchor="left", yref="paper", y=0.02, showarrow=False, font=dict(size=12, color=c["muted"]),
                       text="dashed: elements kept, the least there is")  # fmt: skip
    fig.update_xaxes(type="log", tickvals=list(sides), ticktext=[str(s) for s in sides], title_text="side of a tile (log)")
    fig.update_yaxes(rangemode="tozero", title_text="elements in live tiles (%)")
    fig.update_layout(margin=dict(r=130))
    return fig
