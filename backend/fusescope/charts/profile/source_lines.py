"""Where warps stalled: the lines of source, or the instructions, with the most samples, by reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from fusescope.charts import numbers, template
from fusescope.charts.colours import SERIES
from fusescope.charts.escape import plain

MOST = 15
_OTHER = "other reasons"
_ROW = 30  # pixels per line
_ISSUED = "selected"


def bars(rows: Sequence[Mapping], title: str, subtitle: str = "", theme: str = "light") -> go.Figure:
    """rows: of the table ncu_source, of one launch and kind; the MOST with the most samples, in % of all."""
    total = sum(r["samples"] or 0 for r in rows)
    hot = sorted((r for r in rows if r["samples"]), key=lambda r: -r["samples"])[:MOST]
    if not hot:
        return template.empty("No line has a sample (ncu --section SourceCounters collects them).", theme)
    c = template.THEMES[theme]
    common = _common(hot)
    fig = template.figure(title, template.join(subtitle, f"{total:,} samples"), theme, 170 + _ROW * len(hot))
    places = list(range(len(hot)))
    texts = [f"<b>{where(r)}</b> {plain(r['text'].strip(), 60)}" for r in hot]
    left = [r["samples"] for r in hot]
    for n, reason in enumerate((*common, _OTHER)):
        values = [r.get(f"stall_{reason}") or 0 for r in hot] if reason != _OTHER else left
        # reasons of a line may add up to less than its samples, and in sampled reports to more
        values = [min(v, rest) for v, rest in zip(values, left, strict=True)]
        left = [rest - v for v, rest in zip(values, left, strict=True)]
        if any(values):
            fig.add_bar(
                orientation="h",
                y=places,
                x=[100 * v / total for v in values],
                name=said(reason),
                width=0.45,
                offset=0.0,
                marker=dict(color=SERIES[n] if reason != _OTHER else c["grid"]),
                customdata=[plain(r["text"].strip(), 160) for r in hot],
                hovertemplate=f"%{{customdata}}<br>{said(reason)}: %{{x:.3g}} % of samples<extra></extra>",
            )
    for place, text, row in zip(places, texts, hot, strict=True):
        fig.add_annotation(
            x=0,
            xref="paper",
            xanchor="left",
            y=place - 0.22,
            showarrow=False,
            text=f"{text} · {numbers.percent(row['samples'] / total)}",
            font=dict(size=11.5, color=c["ink"]),
        )
    fig.update_layout(
        barmode="stack",
        showlegend=True,
        legend=dict(orientation="h", y=-0.1 - 1.2 / (len(hot) + 2), traceorder="normal"),
    )
    fig.update_xaxes(title_text="% of the launch's samples", rangemode="tozero")
    fig.update_yaxes(range=[len(hot) - 0.4, -0.55], visible=False)
    return fig


def where(row: Mapping) -> str:
    """ "kernel.cu:42", or an instruction's address."""
    if row["kind"] == "sass":
        return plain(row["address"] or "?", 20)
    file = str(row["file"] or "").replace("\\", "/").rpartition("/")[2]
    return f"{plain(file, 40)}:{row['line']}" if file else f"line {row['line']}"


def reasons(row: Mapping) -> list[tuple[str, int]]:
    """(reason, samples) of a row, most first; "selected" is no stall and comes with them."""
    found = {k.removeprefix("stall_"): v for k, v in row.items() if k.startswith("stall_") and v and v == v}
    return sorted(((k, int(v)) for k, v in found.items()), key=lambda kv: -kv[1])


def said(reason: str) -> str:
    """A reason in words: "long_sb" as "long scoreboard"."""
    return "issued (no stall)" if reason == _ISSUED else _WORDS.get(reason, reason.replace("_", " "))


def _common(rows: Sequence[Mapping]) -> list[str]:
    total: dict[str, int] = {}
    for row in rows:
        for reason, count in reasons(row):
            total[reason] = total.get(reason, 0) + count
    return sorted(total, key=lambda reason: -total[reason])[: len(SERIES)]


_WORDS = {
    "long_sb": "long scoreboard (global memory)",
    "long_scoreboard": "long scoreboard (global memory)",
    "short_sb": "short scoreboard (shared memory)",
    "short_scoreboard": "short scoreboard (shared memory)",
    "barrier": "barrier",
    "math": "math pipe throttle",
    "math_pipe_throttle": "math pipe throttle",
    "mio": "MIO throttle",
    "mio_throttle": "MIO throttle",
    "lg": "LG throttle",
    "lg_throttle": "LG throttle",
    "imc": "constant cache miss",
    "imc_miss": "constant cache miss",
    "no_inst": "no instruction",
    "gmma": "wgmma",
}
