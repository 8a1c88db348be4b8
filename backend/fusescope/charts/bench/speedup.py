"""Speed-up over the baseline of one case: a bar an implementation, the line at 1.0, interval, verdict; wrong
ones struck out.

Name and verdict stand in a line above their bar, so that the bars have the whole width, however narrow the
page is.
"""

from __future__ import annotations

import plotly.graph_objects as go

from fusescope.charts import axes, captions, numbers, template, verdicts
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
_NAME, _LINE = 20, 50  # characters of the narrowest chart: a name, and all of a line


def verdict(record: Record, baseline: str) -> str:
    """The verdict of a record: faster, slower, same within N %, inconclusive, baseline, or its status."""
    if record.status != "ok":
        return STATUS_WORDS[record.status]
    if record.impl == baseline:
        return "baseline"
    s = record.speedup
    return verdicts.verdict(s.verdict, s.low, s.high) if s else "not compared"


def bars(records: list[Record], baseline: str, subtitle: str = "", theme: str = "light") -> go.Figure:
    """Horizontal bars, fastest on top; ``records`` are of one case.

    An interval is the 95 % bootstrap interval of the paired ratio. Records without a speed-up keep their row
    and say why.
    """
    if not records:
        return template.empty("No record yet.", theme)
    c = template.THEMES[theme]
    rows = sorted(records, key=lambda r: value_of(r, baseline) or 0)
    mode = next((r.speedup.of for r in rows if r.speedup), rows[-1].main)
    fig = template.figure(
        f"Speed-up over {short(baseline)}",
        _subtitle(subtitle, captions.mode(mode), rows),
        theme,
        height=122 + _ROW * len(rows),
    )
    ratios = [value_of(r, baseline) for r in rows]
    for record, value in zip(rows, ratios, strict=True):
        if value is None:
            continue
        compared = record.speedup if record.impl != baseline else None
        axes.ratio_bar(
            fig,
            record.impl,
            value,
            (compared.low, compared.high) if compared else None,
            c["ink"],
            marker=dict(color=colour(record.impl)),
            hovertemplate=hover(record, baseline) + "<extra></extra>",
        )
    axis = axes.ratio(ratios, [v for r in rows if r.speedup for v in (r.speedup.low, r.speedup.high)])
    fig.update_xaxes(**axis, title_text=f"speed-up over {short(baseline)} (log)")
    names = [r.impl for r in rows]
    axes.named_rows(fig, rows, categoryorder="array", categoryarray=names, linecolor="rgba(0,0,0,0)")
    axes.line_at(fig, theme, x=1)
    named = {
        r.impl: (_label_left(r, baseline), _label_right(r, v, baseline))
        for r, v in zip(rows, ratios, strict=True)
    }
    axes.row_labels(fig, named, _ABOVE, theme)
    for record in rows:
        if text := _reason(record):
            fig.add_annotation(
                x=0,
                xref="paper",
                xanchor="left",
                y=record.impl,
                text=text,
                showarrow=False,
                bgcolor=c["paper"],
                font=dict(size=12, color=c["muted"]),
                hovertext=record.reason or text,
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
            f"speed-up {numbers.ratio(s.median)} [{numbers.three(s.low)}, {numbers.three(s.high)}], 95 % "
            f"of {s.of}"
        )
    if record.throttled:
        lines.append("the device was throttled during these samples")
    if record.reason:
        lines.append(record.reason)
    return "<br>".join(line for line in lines if line)


def value_of(record: Record, baseline: str) -> float | None:
    """The speed-up of a record, 1 for the baseline; None without one."""
    if record.status != "ok":
        return None
    if record.impl == baseline:
        return 1.0
    return record.speedup.median if record.speedup else None


def _label_left(record: Record, baseline: str) -> str:
    name = short(record.impl)
    name = name if len(name) <= _NAME else name[: _NAME - 1] + "…"
    if record.status == "wrong":
        return f"<s>{name}</s>"
    return f"<b>{name}</b>" if record.impl == baseline else name


def _label_right(record: Record, value: float | None, baseline: str) -> str:
    word = verdict(record, baseline)
    if record.status != "ok":
        return f"<b>{'✗ ' if record.status == 'wrong' else ''}{word}</b>"
    took = f"{numbers.time(record.ms)}{' †' if record.throttled else ''}"
    if record.impl == baseline or value is None:
        return f"<b>{word}</b> · {took}"
    s = record.speedup
    return f"<b>{verdicts.headline(value, word)}</b> {verdicts.interval(word, s.low, s.high)} · {took}"


def _reason(record: Record) -> str:
    """What stands where a bar would: why there is none."""
    if record.status == "ok":
        return ""
    if record.status == "wrong":
        error = f"error {numbers.three(record.accuracy.max_abs)}" if record.accuracy else "no finite result"
        return f"{error}, not timed"
    reason = record.reason or ""
    return reason if len(reason) <= _LINE else reason[: _LINE - 1] + "…"


def _subtitle(subtitle: str, mode: str, rows: list[Record]) -> str:
    """Device, dtype and date with what the number is; the case under it, and what the mark of throttled ones
    means."""
    lines = [template.join(subtitle, mode), captions.case(rows[0])]
    if any(r.throttled for r in rows):
        lines.append("† the device was throttled")
    return "<br>".join(line for line in lines if line)
