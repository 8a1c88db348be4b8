"""Why the scheme that was found is fast: what each boundary of it is worth, and by how much it beats what one
could use instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from fusescope.charts import axes, numbers, template
from fusescope.charts.fusion.ranks import BASELINE_COLOURS

_COSTS, _SAVES = "#7D8590", "#D55E00"


def boundaries(rows: Sequence[Mapping], subtitle: str = "", theme: str = "light") -> go.Figure:
    """``rows``: {after, names, effect_ms, low, high}: what cutting the layer after that operator (None:
    taking the hand-written attention) adds to its time, with its 95 % interval; below zero it makes the layer
    faster. Faint: the interval holds zero."""
    rows = [r for r in rows if r.get("effect_ms") is not None]
    if not rows:
        return template.empty("No boundary's effect is known yet.", theme)
    c = template.THEMES[theme]
    unit, factor = numbers.time_unit([abs(r["effect_ms"]) for r in rows])
    labels = [_label(r) for r in rows]
    fig = template.figure("Which boundaries matter", subtitle, theme, height=140 + 26 * len(rows))
    fig.add_bar(
        y=labels,
        x=[r["effect_ms"] * factor for r in rows],
        orientation="h",
        marker=dict(
            color=[_COSTS if r["effect_ms"] > 0 else _SAVES for r in rows],
            opacity=[1.0 if _sure(r) else 0.4 for r in rows],
        ),
        error_x=dict(
            type="data",
            symmetric=False,
            color=c["ink"],
            thickness=1.3,
            width=4,
            array=[_width(r.get("high"), r["effect_ms"]) * factor for r in rows],
            arrayminus=[_width(r["effect_ms"], r.get("low")) * factor for r in rows],
        ),
        hovertext=[_words(r) for r in rows],
        hoverinfo="text",
    )
    fig.add_vline(x=0, line=dict(color=c["ink"], width=1.4))
    fig.update_xaxes(title_text=f"what it adds to the time ({unit}); below zero: faster")
    fig.update_yaxes(autorange="reversed", showgrid=False, ticks="")
    return fig


def gains(
    speedups: Mapping[str, Mapping], words: Mapping[str, str], subtitle: str = "", theme: str = "light"
) -> go.Figure:
    """``speedups``: baseline → {median, low, high, verdict} of the scheme found over it; ``words``: what each
    baseline is."""
    known = {name: s for name, s in speedups.items() if s}
    if not known:
        return template.empty("The scheme was compared with nothing.", theme)
    c = template.THEMES[theme]
    names = sorted(known, key=lambda n: known[n]["median"])
    fig = template.figure("Speed-up of the scheme found", subtitle, theme, height=130 + 46 * len(names))
    named = {}
    for name in names:
        s = known[name]
        fig.add_bar(
            y=[name],
            x=[s["median"] - 1],
            base=1,
            orientation="h",
            width=0.36,
            marker_color=BASELINE_COLOURS.get(name, "#5B6FB5"),
            hovertext=f"over {name}: {words.get(name, '')}",
            hoverinfo="text",
        )
        fig.add_scatter(
            y=[name],
            x=[s["median"]],
            mode="markers",
            marker=dict(color=c["ink"], size=1),
            hoverinfo="skip",
            error_x=dict(
                type="data",
                symmetric=False,
                array=[s["high"] - s["median"]],
                arrayminus=[s["median"] - s["low"]],
                color=c["ink"],
                thickness=1.6,
                width=5,
            ),
        )
        sign = {"faster": "▲ ", "slower": "▼ "}.get(s["verdict"], "≈ ")
        said = f"<b>{sign}{numbers.ratio(s['median'])} {s['verdict']}</b> [{numbers.three(s['low'])}, {numbers.three(s['high'])}]"
        named[name] = f"over {name}", said
    axes.row_labels(fig, named, 18, theme)
    ends = [known[n][k] for n in names for k in ("low", "high")]
    fig.update_xaxes(
        **axes.ratio([known[n]["median"] for n in names], ends), title_text="times as fast (log)"
    )
    fig.update_yaxes(
        showticklabels=False,
        showgrid=False,
        ticks="",
        linecolor="rgba(0,0,0,0)",
        range=[-0.4, len(names) - 0.35],
    )
    fig.add_vline(x=1, line=dict(color=c["ink"], width=1.5), layer="below")
    fig.update_layout(margin=dict(l=8, r=12, b=40))
    return fig


def _sure(row: Mapping) -> bool:
    """Whether zero lies outside of the interval."""
    return row.get("low") is not None and (row["low"] > 0 or row["high"] < 0)


def _width(high: float | None, low: float | None) -> float:
    return max(0.0, high - low) if high is not None and low is not None else 0.0


def _label(row: Mapping) -> str:
    if row["after"] is None:
        return row["names"][1]
    return f"{row['after']} {row['names'][0]} | {row['after'] + 1} {row['names'][1]}"


def _words(row: Mapping) -> str:
    """The effect, and what turning this one choice round does to the scheme found."""
    what = "taking it" if row["after"] is None else f"cutting after operator {row['after']}"
    said = f"<b>{_label(row)}</b><br>{what} {'adds' if row['effect_ms'] >= 0 else 'saves'} {numbers.time(abs(row['effect_ms']))}"
    if row.get("low") is not None:
        said += f" [{numbers.three(row['low'])}, {numbers.three(row['high'])}] ms"
    if row.get("flipped_ms") is not None:
        how = "measured" if row.get("measured") else "predicted"
        said += f"<br>the scheme found with this turned round: {numbers.time(row['flipped_ms'])}, {how}"
    return said
