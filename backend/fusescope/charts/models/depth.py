"""Error along the depth of a model: one curve per execution mode, the tolerance as a dashed line, and where
it is first exceeded."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from fusescope.analysis.accuracy.depth import first_divergence
from fusescope.charts import axes, numbers, template
from fusescope.charts.colours import colour, glyph, marker

_DASHES = ("solid", "dash", "dot", "dashdot")
LEVELS = {"module": "modules", "kernel": "kernels", "inside": "inside attention", "model": "output"}


def curves(
    entries: Sequence[Mapping[str, Any]], own: bool = False, subtitle: str = "", theme: str = "light"
) -> go.Figure:
    """``entries``: of an accuracy report (way: the execution mode, dtype, rows, and "label" where another
    run's stand next to). ``own``: a kernel's own error instead of what has come together up to there; places
    that one run does not have are gaps in its curve."""
    drawn = [e for e in entries if e["rows"]]
    if not drawn:
        return template.empty("No execution mode was checked here.", theme)
    c = template.THEMES[theme]
    order = _order(drawn)
    at = {name: i for i, name in enumerate(order)}
    title = "Error of each operation alone" if own else "Error by depth"
    what = "against the same input in float64" if own else "against float64 with the same weights"
    fig = template.figure(title, template.join(subtitle, what), theme, 420)
    floor = _floor(drawn, own)
    ends, values = [], []
    dtypes = list(dict.fromkeys(e["dtype"] for e in drawn))
    for e in drawn:
        rows = [r for r in e["rows"] if not own or r["own"]]
        y = [_value(r["own"] if own else r, floor) for r in rows]
        values += y
        fig.add_scatter(
            x=[at[r["name"]] for r in rows],
            y=y,
            mode="lines" if len(rows) > 40 else "lines+markers",
            line=dict(color=colour(e["way"]), width=2, dash=_DASHES[dtypes.index(e["dtype"]) % len(_DASHES)]),
            marker=dict(size=6, symbol=marker(e["way"])),
            hovertext=[hover(e, r, own) for r in rows],
            hoverinfo="text",
            name=label(e),
        )
        if rows:
            ends.append((y[-1], e["way"], _brief(e)))
        first = first_divergence(e["rows"])
        if not own and first is not None:
            row = e["rows"][first]
            fig.add_scatter(
                x=[at[row["name"]]],
                y=[_value(row, floor)],
                mode="markers",
                hovertext=[hover(e, row, own)],
                hoverinfo="text",
                marker=dict(symbol="x", size=13, color=c["ink"], line=dict(width=1)),
                name="first above tolerance",
            )
    if not own:
        for d in dtypes:
            rows = next(e for e in drawn if e["dtype"] == d)["rows"]
            limits = [r["limit"] for r in rows]
            values += limits
            fig.add_scatter(
                x=[at[r["name"]] for r in rows],
                y=limits,
                mode="lines",
                hoverinfo="skip",
                showlegend=False,
                line=dict(color=c["muted"], width=1, dash="dash"),
            )
            axes.note(
                fig,
                f"tolerance in {d}",
                1,
                math.log10(limits[-1]),
                11,
                c["muted"],
                xref="paper",
                xanchor="right",
                yanchor="bottom",
                yshift=2,
            )
    low, high = axes.within(values)
    low, high = min(values + [low]), max(values + [high])
    _ends(fig, ends, low, high)
    fig.update_yaxes(
        type="log",
        exponentformat="power",
        dtick=max(1, math.ceil(math.log10(high / low) / 6)),
        tickangle=0,
        range=[math.log10(low) - 0.3, math.log10(high) + 0.3],
        title_text="‖out − ref‖₂ / ‖ref‖₂ (log)",
    )
    ticks, labels = _layers(order)
    fig.update_xaxes(
        tickvals=ticks,
        ticktext=labels,
        range=[-0.5, len(order) - 0.5],
        title_text="in order of execution",
        tickangle=0,
    )
    axes.left(fig, ["10−10"])
    fig.update_layout(margin=dict(r=150))
    return fig


def label(entry: Mapping[str, Any]) -> str:
    """The label of an entry."""
    return entry.get("label") or f"{entry['way']}, {entry['dtype']}"


def _brief(entry: Mapping[str, Any]) -> str:
    """A short label."""
    text = label(entry)
    for dtype, brief in (("float", "fp"), ("bfp", "bf")):
        text = text.replace(dtype, brief)
    return text


def hover(entry: Mapping[str, Any], row: Mapping[str, Any], own: bool) -> str:
    """A place as lines for a hover box."""
    e = row["own"] if own else row
    lines = [
        f"<b>{row['name']}</b>",
        f"{row['kind']} · {label(entry)}",
        f"relative error {_three(e['relative_l2'])}",
        f"largest {numbers.three(e['max_abs'])}, mean {numbers.three(e['mean_abs'])} absolute",
        f"cosine {e['cosine']:.9g}",
    ]
    if not own:
        lines.append(
            ("within" if row["accepted"] else "<b>above</b>")
            + f" the tolerance {numbers.three(row['limit'])}"
        )
    if e["unequal"]:
        lines.append(f"{e['unequal']:,} elements NaN or infinite on one side only")
    return "<br>".join(lines)


def _floor(entries, own: bool) -> float:
    """Where an exact result is drawn, a logarithmic axis having no zero: a little below the least error there
    is."""
    errors = [
        (r["own"] if own else r)["relative_l2"] for e in entries for r in e["rows"] if not own or r["own"]
    ]
    return min((v for v in errors if v), default=1e-16) / 4


def _value(figures: Mapping[str, Any], floor: float) -> float:
    error = figures["relative_l2"]
    return 10.0 if error is None else max(error, floor)


def _three(value: float | None) -> str:
    return "∞" if value is None else numbers.three(value)


def _order(entries) -> list[str]:
    """All places, in the order of the entry that has most of them; others' own places after what they
    follow."""
    longest = max(entries, key=lambda e: len(e["rows"]))
    order = [r["name"] for r in longest["rows"]]
    known = set(order)
    for e in entries:
        before = -1
        for r in e["rows"]:
            if r["name"] in known:
                before = order.index(r["name"])
            else:
                before += 1
                order.insert(before, r["name"])
                known.add(r["name"])
    return order


def _layers(order: Sequence[str]) -> tuple[list[int], list[str]]:
    """Where a layer begins, at most a dozen of them, and the number it has."""
    starts: dict[str, int] = {}
    for i, name in enumerate(order):
        found = re.search(r"^(.*?(?:layer|layers|block|h)\.)(\d+)\.", name)
        if found:
            starts.setdefault(found[0], i)
    if not starts:
        return [], []
    keys = list(starts)
    step = max(1, math.ceil(len(keys) / 10))
    several = len({re.sub(r"\d+\.$", "", k) for k in keys}) > 1
    words = [k.rstrip(".").split(".") for k in keys[::step]]
    return [starts[k] for k in keys[::step]], [
        f"{w[0]} {w[-1]}" if several else f"layer {w[-1]}" for w in words
    ]


def _ends(fig: go.Figure, ends, low: float, high: float) -> None:
    """Names at the right edge, pushed apart where they meet."""
    gap = max(math.log10(high / low), 0.3) * 0.055
    places: list[float] = []
    for value, _, _ in sorted(ends):
        places.append(max(math.log10(value), places[-1] + gap) if places else math.log10(value))
    ceiling = math.log10(high) + 0.25  # plotly draws no label beyond the axis: push down from the top
    for n in reversed(range(len(places))):
        places[n] = min(places[n], ceiling)
        ceiling = places[n] - gap
    for (_, way, text), y in zip(sorted(ends), places, strict=True):
        axes.at_right(fig, f"<span style='color:{colour(way)}'>{glyph(way)}</span> {text[:24]}", y, yref="y")
