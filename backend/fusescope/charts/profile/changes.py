"""Two profiles compared: what got faster, slower, new or gone, as bars of the change in time."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from fusescope.analysis.profile.diff import Difference
from fusescope.charts import axes, numbers, template
from fusescope.charts.escape import label, plain

COLOURS = {
    "faster": template.FASTER,
    "gone": template.FASTER,
    "slower": template.SLOWER,
    "new": template.SLOWER,
    "same": "#8A9199",
}
MARK = {"faster": "▲", "gone": "−", "slower": "▼", "new": "+", "same": "="}
MOST = 25
_ROW, _BAR = 30, 0.44  # pixels of a row at least, and what of it is bar
_SPARE = 30  # pixels that few rows share


def shown(rows: Sequence[Difference], relative: bool) -> list[Difference]:
    """What ``bars`` draws."""
    return [r for r in rows if r.state != "same" and (not relative or r.speedup)][:MOST]


def nothing(rows: Sequence[Difference], by: str) -> str:
    """Why ``bars`` has nothing to draw."""
    if any(r.state != "same" for r in rows):
        return f"No {by} is in both profiles: what is new or gone has no speed-up."
    return "No change above the tolerance."


def bars(
    rows: Sequence[Difference],
    by: str,
    relative: bool = False,
    subtitle: str = "",
    theme: str = "light",
    verdicts: bool = True,
) -> go.Figure:
    """The largest changes, in time per step or (``relative``) as speed-up of b over a; new and gone
    have none and are left out there. Without ``verdicts`` a change is neither faster nor slower: the two
    are of different devices."""
    drawn = shown(rows, relative)
    if not drawn:
        return template.empty(nothing(rows, by), theme)
    c = template.THEMES[theme]
    fig = template.figure(f"Changes by {by}", subtitle, theme, height=150 + _ROW * len(drawn))
    unit, factor = numbers.time_unit([abs(r.delta_ns) / 1e6 for r in drawn])
    y = list(range(len(drawn)))
    ratio = [r.speedup or 1.0 for r in drawn]
    # on the axis of ratios a bar begins at 1: its length is what is beyond
    x = [v - 1 for v in ratio] if relative else [r.delta_ns / 1e6 * factor for r in drawn]
    said = {r: (f"{r.state}: ", f" ({numbers.faster(r.speedup)})") if verdicts else ("", "") for r in drawn}
    hover = [
        f"<b>{plain(r.name, 160)}</b>{'<br>' + plain(r.detail, 160) if r.detail else ''}<br>"
        f"{said[r][0]}{numbers.time(r.a_ns / 1e6)} → {numbers.time(r.b_ns / 1e6)} per step{said[r][1]}<br>"
        f"{numbers.three(r.a_calls)} → {numbers.three(r.b_calls)} calls per step"
        for r in drawn
    ]
    fig.add_bar(
        orientation="h",
        x=x,
        y=y,
        base=1 if relative else 0,
        marker=dict(color=[COLOURS[r.state if verdicts else "same"] for r in drawn]),
        width=_BAR,
        customdata=hover,
        hovertemplate="%{customdata}<extra></extra>",
    )
    labels = {}
    for n, r in enumerate(drawn):
        value = numbers.faster(r.speedup) if relative else f"{f'{r.state} ' * verdicts}{_signed(r.delta_ns)}"
        name = label(r.name, 60) if by == "kernel" else plain(r.name, 60)
        detail = (
            f" <span style='color:{c['muted']}'>{plain(r.detail, 30)}</span>"
            if r.detail and by != "kernel"
            else ""
        )
        labels[n] = (f"{f'{MARK[r.state]} ' * verdicts}{name}{detail}", value)
    if relative:
        axis = axes.ratio(ratio)
        fig.update_xaxes(**axis, title_text="speed-up of b over a (log), > 1 is faster")
        fig.add_vline(x=1, line=dict(color=c["line"], width=1))
    else:
        fig.update_xaxes(title_text=f"time of b − time of a, per step ({unit})")
        fig.add_vline(x=0, line=dict(color=c["line"], width=1))
    fig.update_yaxes(range=[len(drawn) - 0.6, -0.85], visible=False)
    row = _ROW + _SPARE / len(drawn)
    axes.row_labels(fig, labels, round(_BAR / 2 * row) + 11, theme)
    return fig


def _signed(ns: float) -> str:
    return f"{'+' if ns > 0 else '−'}{numbers.time(abs(ns) / 1e6)}"
