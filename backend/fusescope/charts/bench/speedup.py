"""Speed-up over the baseline of one case: a bar an implementation, the line at 1.0, interval, verdict; wrong
ones struck out.

Name and verdict stand in a line above their bar, so that the bars have the whole width, however narrow the
page is.
"""

from __future__ import annotations

import plotly.graph_objects as go

from fusescope.charts import axes, captions, numbers, template
from fusescope.charts.colours import colour, short
from fusescope.core.records import Record

STATUS_WORDS = {
    "ok": "ok",
    "wrong": "wrong",
    "unsupported": "unsupported",
    "oom": "out of memory",
    "timeout": "timed out",
    "crashed": "crashed",
    "error": "error",
}
_ROW = 46  # pixels a bar takes with the line above it
_ABOVE = 18  # pixels from the middle of a bar to that of its line
_NAME, _REASON = 22, 52  # characters that fit beside the verdict, and on a line, of the narrowest chart


def verdict(record: Record, baseline: str) -> str:
    """The one word (or two) said of a record: faster, slower, cannot tell, baseline, or its status in
    words."""
    if record.status != "ok":
        return STATUS_WORDS[record.status]
    if record.impl == baseline:
        return "baseline"
    return record.speedup.verdict if record.speedup else "not compared"


def bars(records: list[Record], baseline: str, subtitle: str = "", theme: str = "light") -> go.Figure:
    """Horizontal bars, fastest on top, then the baseline's failures; ``records`` are of one case.

    An interval is the 95 % bootstrap interval of the paired ratio. Records without a speed-up keep their row
    and say why.
    """
    if not records:
        return template.empty("No record yet.", theme)
    c = template.THEMES[theme]
    rows = sorted(records, key=lambda r: _ratio(r, baseline) or 0)
    unit, factor = numbers.time_unit(r.ms for r in rows)
    mode = next((r.speedup.of for r in rows if r.speedup), rows[-1].main)
    fig = template.figure(
        f"Speed-up over {short(baseline)}",
        _subtitle(subtitle, captions.mode(mode), rows),
        theme,
        height=122 + _ROW * len(rows),
    )
    ratios = [_ratio(r, baseline) for r in rows]
    for record, value in zip(rows, ratios, strict=True):
        if value is None:
            continue
        interval = record.speedup
        fig.add_bar(
            y=[record.impl],
            x=[value - 1],
            base=1,
            orientation="h",
            marker=dict(color=colour(record.impl)),
            width=0.36,
            hovertemplate=hover(record, baseline) + "<extra></extra>",
        )
        if interval and record.impl != baseline:
            fig.add_scatter(
                y=[record.impl],
                x=[value],
                mode="markers",
                marker=dict(color=c["ink"], size=1),
                hoverinfo="skip",
                error_x=dict(
                    type="data",
                    symmetric=False,
                    array=[interval.high - value],
                    arrayminus=[value - interval.low],
                    color=c["ink"],
                    thickness=1.6,
                    width=5,
                ),
            )
    axis = axes.ratio(ratios, [v for r in rows if r.speedup for v in (r.speedup.low, r.speedup.high)])
    fig.update_xaxes(**axis, title_text=f"times as fast as {short(baseline)} (log)")
    fig.update_yaxes(
        categoryorder="array",
        categoryarray=[r.impl for r in rows],
        showticklabels=False,
        showgrid=False,
        ticks="",
        linecolor="rgba(0,0,0,0)",
        range=[-0.4, len(rows) - 0.35],
    )
    fig.add_vline(x=1, line=dict(color=c["ink"], width=1.5), layer="below")
    named = {
        r.impl: (_label(r, baseline), _words(r, v, baseline, unit, factor))
        for r, v in zip(rows, ratios, strict=True)
    }
    axes.row_labels(fig, named, _ABOVE, theme)
    for record in rows:
        if said := _instead(record):
            fig.add_annotation(
                x=0,
                xref="paper",
                xanchor="left",
                y=record.impl,
                text=said,
                showarrow=False,
                bgcolor=c["paper"],
                font=dict(size=12, color=c["muted"]),
                hovertext=record.reason or said,
            )
    fig.update_layout(margin=dict(l=8, r=12, b=40))
    return fig


def hover(record: Record, baseline: str) -> str:
    """Median, interval, n and status of a record, as lines for a hover box."""
    lines = [f"<b>{short(record.impl)}</b> {verdict(record, baseline)}", captions.case(record)]
    t = record.time
    if t:
        unit, factor = numbers.time_unit([t.median])
        lines.append(
            f"median {numbers.three(t.median * factor)} {unit} "
            f"[{numbers.three(t.low * factor)}, {numbers.three(t.high * factor)}], n = {t.n}"
            + ("" if t.converged else ", did not converge")
        )
    if record.speedup and record.impl != baseline:
        s = record.speedup
        lines.append(
            f"speed-up {numbers.ratio(s.median)} [{numbers.three(s.low)}, {numbers.three(s.high)}], 95 % of {s.of}"
        )
    if record.throttled:
        lines.append("the device throttled during these samples")
    if record.reason:
        lines.append(record.reason)
    return "<br>".join(line for line in lines if line)


def _ratio(record: Record, baseline: str) -> float | None:
    if record.status != "ok":
        return None
    if record.impl == baseline:
        return 1.0
    return record.speedup.median if record.speedup else None


def _label(record: Record, baseline: str) -> str:
    name = short(record.impl)
    name = name if len(name) <= _NAME else name[: _NAME - 1] + "…"
    if record.status == "wrong":
        return f"<s>{name}</s>"
    return f"<b>{name}</b>" if record.impl == baseline else name


def _words(record: Record, value: float | None, baseline: str, unit: str, factor: float) -> str:
    word = verdict(record, baseline)
    if record.status != "ok":
        return f"<b>{'✗ ' if record.status == 'wrong' else ''}{word}</b>"
    took = f"{numbers.three(record.ms * factor)} {unit}{' †' if record.throttled else ''}"
    if record.impl == baseline or value is None:
        return f"<b>{word}</b> · {took}"
    sign = {"faster": "▲ ", "slower": "▼ "}.get(word, "≈ ")
    s = record.speedup
    return f"<b>{sign}{numbers.ratio(value)} {word}</b> [{numbers.three(s.low)}, {numbers.three(s.high)}] · {took}"


def _instead(record: Record) -> str:
    """What stands where a bar would: why there is none."""
    if record.status == "ok":
        return ""
    if record.status == "wrong":
        error = f"error {numbers.three(record.accuracy.max_abs)}" if record.accuracy else "no finite result"
        return f"{error}, not timed"
    reason = record.reason or ""
    return reason if len(reason) <= _REASON else reason[: _REASON - 1] + "…"


def _subtitle(subtitle: str, mode: str, rows: list[Record]) -> str:
    """Device, dtype and date with what the number is; the case under it, and what the mark of throttled ones
    means."""
    lines = [" · ".join(p for p in (subtitle, mode) if p), captions.case(rows[0])]
    if any(r.throttled for r in rows):
        lines.append("† the device throttled")
    return "<br>".join(line for line in lines if line)
