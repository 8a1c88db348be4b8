"""Why the best scheme is fast: the effect of each boundary, and its speed-up over the alternatives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from fusescope.charts import axes, numbers, template, verdicts
from fusescope.charts.colours import colour
from fusescope.charts.fusion.ranks import named as called
from fusescope.core.records import Speedup

_COSTS, _SAVES = template.SLOWER, template.FASTER
_ROW = 38  # pixels of a bar with its name above


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
    fig = template.figure("Which boundaries matter", subtitle, theme, height=130 + _ROW * len(rows))
    fig.add_bar(
        y=labels,
        width=0.4,
        x=[r["effect_ms"] * factor for r in rows],
        orientation="h",
        marker=dict(
            color=[_COSTS if r["effect_ms"] > 0 else _SAVES for r in rows],
            opacity=[1.0 if _sure(r) else 0.4 for r in rows],
        ),
        error_x=axes.interval(
            [r["effect_ms"] * factor for r in rows],
            [r["effect_ms"] * factor if r.get("low") is None else r["low"] * factor for r in rows],
            [r["effect_ms"] * factor if r.get("high") is None else r["high"] * factor for r in rows],
            c["ink"],
        ),
        hovertext=[_hover(r) for r in rows],
        hoverinfo="text",
    )
    axes.line_at(fig, theme, x=0)
    fig.update_xaxes(title_text=f"added time ({unit}); below zero: faster", nticks=6, tickangle=0)
    named = {label: (label, signed(r["effect_ms"])) for label, r in zip(labels, rows, strict=True)}
    axes.row_labels(fig, named, 17, theme)  # beside the bars they would leave a phone none of its width
    hidden = dict(showticklabels=False, showgrid=False, ticks="")
    fig.update_yaxes(range=[len(rows) - 0.6, -0.78], **hidden)
    return fig


def gains(
    speedups: Mapping[str, Mapping], meanings: Mapping[str, str], subtitle: str = "", theme: str = "light"
) -> go.Figure:
    """``speedups``: baseline → {median, low, high, verdict} of the scheme found over it; ``meanings``: what
    each baseline is."""
    known = {name: s for name, s in speedups.items() if s}
    if not known:
        return template.empty("The scheme was not compared with a baseline.", theme)
    c = template.THEMES[theme]
    names = sorted(known, key=lambda n: known[n]["median"])
    fig = template.figure("Speed-up of the best scheme", subtitle, theme, height=130 + 46 * len(names))
    named = {}
    for name in names:
        s = known[name]
        axes.ratio_bar(
            fig,
            name,
            s["median"],
            (s["low"], s["high"]),
            c["ink"],
            marker_color=colour(name),
            hovertext=f"over {called(name)}: {meanings.get(name, '')}",
            hoverinfo="text",
        )
        verdict = Speedup.from_json({"of": ""} | s).words
        headline = verdicts.headline(s["median"], verdict)
        headline = f"<b>{headline}</b>" if verdicts.decided(verdict) else headline
        told = verdicts.with_interval(headline, verdict, s["low"], s["high"])
        named[name] = f"over {called(name)}", told
    axes.row_labels(fig, named, 20, theme)
    ends = [known[n][k] for n in names for k in ("low", "high")]
    axis = axes.ratio([known[n]["median"] for n in names], ends)
    axes.arrows(fig, axis, {n: (known[n]["low"], known[n]["high"]) for n in names}, c["ink"])
    fig.update_xaxes(**axis, title_text="speed-up (log)")
    axes.named_rows(fig, names, linecolor="rgba(0,0,0,0)")
    axes.line_at(fig, theme, x=1)
    fig.update_layout(margin=dict(r=12))
    return fig


def _sure(row: Mapping) -> bool:
    """Whether zero is outside of the interval."""
    return row.get("low") is not None and (row["low"] > 0 or row["high"] < 0)


def signed(ms: float) -> str:
    """ "+154 µs", or with a minus."""
    return f"{'+' if ms >= 0 else '−'}{numbers.time(abs(ms))}"


def _label(row: Mapping) -> str:
    if row["after"] is None:
        return row["names"][1]
    return f"{row['after']} {row['names'][0]} | {row['after'] + 1} {row['names'][1]}"


def _hover(row: Mapping) -> str:
    """The effect, and what reversing this one choice does to the best scheme."""
    what = "taking it" if row["after"] is None else f"cutting after operator {row['after']}"
    effect = f"{'adds' if row['effect_ms'] >= 0 else 'saves'} {numbers.time(abs(row['effect_ms']))}"
    text = f"<b>{_label(row)}</b><br>{what} {effect}"
    if row.get("low") is not None:
        text += f" [{numbers.three(row['low'])}, {numbers.three(row['high'])}] ms"
    if row.get("flipped_ms") is not None:
        how = "measured" if row.get("measured") else "predicted"
        text += f"<br>the best scheme with this choice reversed: {numbers.time(row['flipped_ms'])}, {how}"
    return text
