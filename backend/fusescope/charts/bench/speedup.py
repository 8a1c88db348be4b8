"""Speed-up over the baseline of one case: a bar per implementation, the line at 1.0, interval, verdict; wrong
ones struck out.

Name, verdict and time stand side by side in a line above their bar, so that the bars have the whole width,
however narrow the page is; the axis is on top, where it is seen of tall charts too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import plotly.graph_objects as go

from fusescope.charts import axes, captions, numbers, template, verdicts
from fusescope.charts.colours import colour, short
from fusescope.core.machine.conditions import footnotes, marks
from fusescope.core.records import Record
from fusescope.core.verdict import scope

STATUS_WORDS = {
    "ok": "ok",
    "wrong": "wrong",
    "unsupported": "unsupported",
    "oom": "out of memory",
    "timeout": "timed out",
    "crashed": "crashed",
    "error": "error",
}
_ROW, _MANY_ROW, _MANY = 46, 38, 8  # pixels a bar takes with the line above it; of more than so many rows
_ABOVE = 19  # pixels from the middle of a bar to that of its line
_AXIS = 46  # pixels of the axis on top with its title
_FAINT = 0.35  # of a bar whose length says nothing yet
_NAME, _LINE = 23, 50  # characters of the narrowest chart: a name, and all of a line
_CHARACTER, _BOLD = 6.5, 7.0  # pixels of one, on average, of a name


def verdict(record: Record, baseline: str) -> str:
    """The verdict of a record: faster, slower, same within N %, inconclusive, baseline, or its status."""
    if record.status != "ok":
        return STATUS_WORDS[record.status]
    if record.impl == baseline:
        return "baseline"
    s = record.speedup
    return s.words if s else "not compared"


def in_order(records: Iterable[Record]) -> list[Record]:
    """Records of one case as charts and tables list them: fastest first, by the time of the mode that was
    compared; what has no time last, as it was."""
    return sorted(
        records, key=lambda r: verdicts.compared_time(r).median if r.status == "ok" and r.ms else math.inf
    )


def bars(records: list[Record], baseline: str, subtitle: str = "", theme: str = "light") -> go.Figure:
    """Horizontal bars, fastest on top; ``records`` are of one case.

    Times, ratios and their 95 % intervals are of the same samples. Records without a speed-up keep their row
    and say why.
    """
    if not records:
        return template.empty("No record yet.", theme)
    c = template.THEMES[theme]
    rows = in_order(records)[::-1]  # plotly's axis goes up
    mode = next((r.speedup.of for r in rows if r.speedup), rows[-1].main)
    fig = template.figure(
        f"Speed-up over {short(baseline)}",
        _subtitle(subtitle, captions.mode(mode), rows),
        theme,
        height=template.TOP + _AXIS + 10 + (_ROW if len(rows) <= _MANY else _MANY_ROW) * len(rows),
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
            opacity=_FAINT if verdict(record, baseline).startswith(verdicts.INCONCLUSIVE) else 1.0,
            hovertemplate=hover(record, baseline) + "<extra></extra>",
        )
    known = [r.speedup for r in rows if r.speedup and not verdicts.unknown(r.speedup.low, r.speedup.high)]
    axis = axes.ratio(ratios, [v for s in known for v in (s.low, s.high)])
    compared = {r.impl: (r.speedup.low, r.speedup.high) for r in rows if r.speedup and r.impl != baseline}
    axes.arrows(fig, axis, compared, c["ink"])
    fig.update_xaxes(**axis, side="top", title_text=_axis_title(rows, baseline), title_standoff=6)
    names = [r.impl for r in rows]
    axes.named_rows(fig, rows, categoryorder="array", categoryarray=names, linecolor="rgba(0,0,0,0)")
    axes.line_at(fig, theme, x=1)
    named = {
        r.impl: (_label_left(r, baseline), _label_right(r, v, baseline, mode))
        for r, v in zip(rows, ratios, strict=True)
    }
    longest = max(len(_name(r)) * (_BOLD if r.impl == baseline else _CHARACTER) for r in rows)
    axes.row_labels(fig, named, _ABOVE, theme, beside=round(14 + longest))
    for record in rows:
        if text := _reason(record, lines=2 if len(rows) <= _MANY else 1):
            fig.add_annotation(
                x=0,
                xref="paper",
                xanchor="left",
                y=record.impl,
                yanchor="top",
                yshift=9,  # below the name
                text=text,
                align="left",
                showarrow=False,
                bgcolor=c["paper"],
                font=dict(size=11, color=c["muted"]),
                hovertext=record.reason or text,
            )
    fig.update_layout(margin=dict(l=8, r=12, t=fig.layout.margin.t + _AXIS, b=10))
    return fig


def hover(record: Record, baseline: str) -> str:
    """Median, interval, n and status of a record, as lines for a hover box."""
    lines = [f"<b>{short(record.impl)}</b> {verdict(record, baseline)}", captions.case(record)]
    t = verdicts.compared_time(record)
    if t:
        unit, factor = numbers.time_unit([t.median])
        lines.append(
            f"median {numbers.three(t.median * factor)} {unit} "
            f"[{numbers.three(t.low * factor)}, {numbers.three(t.high * factor)}], n = {t.n}"
            + ("" if t.converged else ", did not converge")
        )
    if record.speedup and record.impl != baseline:
        s = record.speedup
        text = verdicts.with_interval(ratio_text(record, baseline), s.words, s.low, s.high)
        lines.append(f"{text}, 95 % {scope(s.processes)}, of {s.of}{verdicts.because(record)}")
        if (wide := verdicts.widened(record)) and wide not in lines[-1]:
            lines.append(wide)
    if record.conditions:
        found = record.conditions
        lines += [found.clock, found.clock_note, found.busy, found.settings]
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


def ratio_text(record: Record, baseline: str) -> str | None:
    """ "▲ 1.84× faster", "▼ 10.3× slower", "≈ same within 1 % (1.00×)", "baseline"; None without a ratio."""
    value, word = value_of(record, baseline), verdict(record, baseline)
    if value is None or record.impl == baseline:
        return word if value else None
    text = verdicts.headline(value, word)
    return text if verdicts.decided(word) else f"{text} ({numbers.ratio(value)})"


def _name(record: Record) -> str:
    """As far as a line has room for it; of a user's function the file is left out first."""
    name = short(record.impl)
    name = name if len(name) <= _NAME else name.rpartition(".py:")[2]
    return name if len(name) <= _NAME else name[: _NAME - 1] + "…"


def _label_left(record: Record, baseline: str) -> str:
    name = _name(record)
    if record.status == "wrong":
        return f"<s>{name}</s>"
    return f"<b>{name}</b>" if record.impl == baseline else name


def _label_right(record: Record, value: float | None, baseline: str, mode: str | None) -> str:
    word = verdict(record, baseline)
    if record.status != "ok":
        return f"<b>{'✗ ' if record.status == 'wrong' else ''}{word}</b>"
    took = f"{numbers.time(verdicts.compared_time(record).median)}{' †' if marks(record) else ''}"
    if record.speedup and record.speedup.of != mode:
        took += f" {record.speedup.of.replace('_', ', ')}"
    if record.impl == baseline or value is None:
        return f"<b>{word}</b> · {took}"
    s = record.speedup
    headline = verdicts.headline(value, word)
    if word.startswith(verdicts.INCONCLUSIVE):  # the reason is in the hover: on a phone the time was cut
        headline = headline.partition(" (")[0]
    headline = f"<b>{headline}</b>" if verdicts.decided(word) else headline
    return f"{verdicts.with_interval(headline, word, s.low, s.high)} · {took}"


def _reason(record: Record, lines: int) -> str:
    """What stands where a bar would: why there is none, in so many lines; the whole text on hover."""
    if record.status == "ok":
        return ""
    if record.status == "wrong":
        if (record.reason or "").startswith("unstable"):
            return "unstable: wrong in a timed call, not timed"
        error = f"error {numbers.three(record.accuracy.max_abs)}" if record.accuracy else "no finite result"
        return f"{error}, not timed"
    found = template.wrapped(record.reason or "", _LINE).split("<br>")
    return "<br>".join(found[:lines]) + ("…" if len(found) > lines else "")


def _axis_title(rows: list[Record], baseline: str) -> str:
    """What the axis and the whiskers are."""
    compared = next((r.speedup for r in rows if r.speedup and r.impl != baseline), None)
    whiskers = f"; whiskers: 95 % interval {scope(compared.processes)}" if compared else ""
    return f"log scale{whiskers}"


def _subtitle(subtitle: str, mode: str, rows: list[Record]) -> str:
    """Device, dtype and date with what the number is; the case under it, and which row the mark † means
    what of."""
    lines = [template.join(subtitle, mode), captions.case(rows[0])]
    lines += [f"† {note}" for note in footnotes(rows[::-1], short)]
    return "<br>".join(line for line in lines if line)
