"""Speed-up over the baseline of one case: a bar an implementation, the line at 1.0, interval, verdict; wrong ones struck out."""

from __future__ import annotations

import plotly.graph_objects as go

from backend.charts import numbers, template
from backend.charts.colours import colour, short
from backend.core.records import Record

STATUS_WORDS = {
    "ok": "ok",
    "wrong": "wrong",
    "unsupported": "unsupported",
    "oom": "out of memory",
    "timeout": "timed out",
    "crashed": "crashed",
    "error": "error",
}
_ROW = 44  # pixels a bar takes with its label


def verdict(record: Record, baseline: str) -> str:
    """The one word (or two) said of a record: faster, slower, cannot tell, baseline, or its status in words."""
    if record.status != "ok":
        return STATUS_WORDS[record.status]
    if record.impl == baseline:
        return "baseline"
    return record.speedup.verdict if record.speedup else "not compared"


def bars(records: list[Record], baseline: str, subtitle: str = "", theme: str = "light") -> go.Figure:
    """Horizontal bars, fastest on top, then the baseline's failures; ``records`` are of one case.

    An interval is the 95 % bootstrap interval of the paired ratio. Records without a speed-up keep their row and say why.
    """
    if not records:
        return template.empty("No record yet.", theme)
    c = template.THEMES[theme]
    rows = sorted(records, key=lambda r: _ratio(r, baseline) or 0)
    unit, factor = numbers.time_unit(_median(r) for r in rows)
    mode = next((r.speedup.of for r in rows if r.speedup), rows[-1].main_mode)
    fig = template.figure(
        f"Speed-up over {short(baseline)}",
        _second_line(subtitle, template.mode_words(mode), rows),
        theme,
        height=134 + _ROW * len(rows),
    )
    ratios = [_ratio(r, baseline) for r in rows]
    names = [r.impl for r in rows]
    for record, value in zip(rows, ratios, strict=True):
        if value is None:
            continue
        interval = record.speedup
        fig.add_bar(
            y=[record.impl], x=[value - 1], base=1, orientation="h", marker=dict(color=colour(record.impl)), width=0.56,
            hovertemplate=hover(record, baseline) + "<extra></extra>",
        )  # fmt: skip
        if interval and record.impl != baseline:
            fig.add_scatter(
                y=[record.impl], x=[value], mode="markers", marker=dict(color=c["ink"], size=1), hoverinfo="skip",
                error_x=dict(
                    type="data", symmetric=False, array=[interval.high - value], arrayminus=[value - interval.low],
                    color=c["ink"], thickness=1.6, width=5,
                ),
            )  # fmt: skip
    axis = template.ratio_axis(ratios, [v for r in rows if r.speedup for v in (r.speedup.low, r.speedup.high)])
    low, high = axis["range"]
    axis["range"] = [low, high + 0.02]
    fig.update_xaxes(**axis, title_text=f"times as fast as {short(baseline)} (log)")
    fig.update_yaxes(
        categoryorder="array", categoryarray=names, tickvals=names, ticktext=[_label(r, baseline) for r in rows],
        showgrid=False, ticks="", linecolor="rgba(0,0,0,0)", range=[-0.6, len(rows) - 0.4],
    )  # fmt: skip
    fig.add_vline(x=1, line=dict(color=c["ink"], width=1.5))
    for record, value in zip(rows, ratios, strict=True):
        # The words stand in a column of their own at the right edge, so that neither bar nor whisker runs through them.
        fig.add_annotation(
            x=1.0, xref="paper", xanchor="left", xshift=8, y=record.impl, yanchor="middle", showarrow=False, align="left",
            text=_words(record, value, baseline, unit, factor, c["muted"]), font=dict(size=12.5),
        )  # fmt: skip
    fig.update_layout(margin=dict(l=8, r=196, b=40))
    return fig


def hover(record: Record, baseline: str) -> str:
    """Median, interval, n and status of a record, as lines for a hover box."""
    lines = [f"<b>{short(record.impl)}</b> {verdict(record, baseline)}", template.case_words(record)]
    t = getattr(record.time_ms, record.main_mode) if record.main_mode else None
    if t:
        unit, factor = numbers.time_unit([t.median])
        lines.append(
            f"median {numbers.three(t.median * factor)} {unit} "
            f"[{numbers.three(t.low * factor)}, {numbers.three(t.high * factor)}], n = {t.n}"
            + ("" if t.converged else ", did not converge")
        )
    if record.speedup and record.impl != baseline:
        s = record.speedup
        lines.append(f"speed-up {numbers.ratio(s.median)} [{numbers.three(s.low)}, {numbers.three(s.high)}], 95 % of {s.of}")
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


def _median(record: Record) -> float | None:
    return getattr(record.time_ms, record.main_mode).median if record.main_mode else None


def _label(record: Record, baseline: str) -> str:
    name = short(record.impl)
    name = name if len(name) <= 30 else name[:29] + "…"
    if record.status == "wrong":
        return f"<s>{name}</s> "
    return f"<b>{name}</b> " if record.impl == baseline else f"{name} "


def _words(record: Record, value: float | None, baseline: str, unit: str, factor: float, muted: str) -> str:
    small = f"<span style='color:{muted}'>"
    word = verdict(record, baseline)
    if record.status == "wrong":
        error = f"error {numbers.three(record.accuracy.max_abs)}" if record.accuracy else "no finite result"
        return f"<b>✗ wrong</b><br>{small}{error}, not timed</span>"
    if record.status != "ok":
        reason = record.reason or ""
        return f"<b>{word}</b><br>{small}{reason if len(reason) <= 30 else reason[:29] + '…'}</span>"
    took = f"{numbers.three(_median(record) * factor)} {unit}"
    throttled = " · throttled" if record.throttled else ""
    if record.impl == baseline or value is None:
        return f"<b>{word}</b> · {took}{throttled}"
    sign = {"faster": "▲ ", "slower": "▼ "}.get(word, "≈ ")
    s = record.speedup
    return (
        f"<b>{sign}{numbers.ratio(value)} {word}</b>{throttled}"
        f"<br>{took} {small}· {numbers.three(s.low)} to {numbers.three(s.high)}</span>"
    )


def _second_line(subtitle: str, mode: str, rows: list[Record]) -> str:
    """Device, dtype and date with what the number is; the case under it."""
    return " · ".join(p for p in (subtitle, mode) if p) + f"<br>{template.case_words(rows[0])}"
