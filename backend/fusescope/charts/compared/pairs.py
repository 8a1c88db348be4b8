"""Runs against the first of them: a bar with its interval for every implementation, case and column, and what
they say together as a sentence."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import pandas as pd
import plotly.graph_objects as go

from fusescope.analysis.compare.columns import MISSING, SEVERAL, Cell, Comparison, Row
from fusescope.charts import axes, captions, numbers, template, verdicts
from fusescope.charts.bench.speedup import STATUS_WORDS
from fusescope.charts.colours import short
from fusescope.charts.compared import differences
from fusescope.core import same_code
from fusescope.core.records import Speedup
from fusescope.core.schema.cases import varying_values, whole
from fusescope.core.verdict import VERDICTS, words

_AXIS, _TITLE = 46, 16  # pixels of the axis on top with its title, and of one more line of that
_MOST = 40
"""Bars drawn; the table below the chart holds every row."""
_ROW, _ABOVE = 46, 18  # pixels: a bar with the line above it, and from the middle of the one to the other
_LINE, _THICKER = 17, 4  # pixels of one more line above a bar, and of what half the bar gains by it
_LABEL, _ALONE = 24, 54  # characters of a name next to the verdict, and on a line of its own
_FAINT = 0.35  # of a bar whose length says nothing yet
_STATES = STATUS_WORDS | {MISSING: "not measured", SEVERAL: "several cases"}


def bars(
    comparison: Comparison,
    letters: Sequence[str],
    subtitle: str = "",
    theme: str = "light",
    unlike: bool = False,
) -> go.Figure:
    """Speed-ups over the base column, what changed most on top; ``letters`` name the columns, the base first.
    Bars have the colour of their verdict. ``unlike``: instead the ratios that are no verdict, of other
    devices or workloads, hatched and without a colour."""
    part = "difference" if unlike else "verdict"
    all_bars = [
        (row, name, column)
        for row, name in zip(comparison.rows, labels(comparison, True), strict=True)
        for column in range(1, len(comparison.columns))
        if getattr(row.cells[column], part)
    ]
    known = all_bars[:_MOST]
    if not known:
        return template.empty(
            f"No implementation has a time for the same case in {letters[0]} and another.", theme
        )
    if len(all_bars) > _MOST:
        order = "largest first" if unlike else "proven and largest first"
        most = f"{_MOST} of {len(all_bars):,} bars, {order}; table has all"
        subtitle = "<br>".join(part for part in (subtitle, most) if part)
    tags = [
        f" · {letters[column]}" * (len(letters) > 2)
        + " · source differs" * (unlike and differences.source(row, column) == "edited")
        for row, _, column in known
    ]
    alone = any(len(name + tag) > _LABEL for (_, name, _), tag in zip(known, tags, strict=True))
    most, line = (_ALONE, _LINE) if alone else (_LABEL, 0)
    ink = template.THEMES[theme]["ink"]
    if unlike:
        title = f"Times compared with {letters[0]}: no verdict on code"
    else:
        own = "" if len(letters) > 2 else f" of {letters[1]}"
        title = f"Speed-up{own} over {letters[0]}"
    fig = template.figure(title, subtitle, theme, height=130 + (_ROW + line) * len(known))
    named, places = {}, list(range(len(known)))[::-1]
    for y, (row, name, column), tag in zip(places, known, tags, strict=True):
        cell, base, found = row.cells[column], row.cells[0], row.cells[column].ratio
        said = differences.words(cell, letters[0], letters[column]) if unlike else headline(found)
        axes.ratio_bar(
            fig,
            y,
            found.median,
            (found.low, found.high),
            ink,
            **_look(None if unlike else found.verdict, theme),
            hovertemplate=f"<b>{name}</b><br>{letters[0]} {numbers.time(base.time.median)}, "
            f"{letters[column]} {numbers.time(cell.time.median)}<br>{said}"
            f"<br>{cell.unlike.text + '<br>' if unlike else ''}{captions.mode(row.mode)}<extra></extra>",
        )
        text = name if len(name + tag) <= most else name[: most - len(tag) - 1] + "…"
        strong = f"<b>{said}</b>" if not unlike and verdicts.decided(found.verdict) else said
        named[y] = (f"{text}{tag}", strong)
    axis = _axis(comparison, letters)
    ratios = [row.cells[column].ratio for row, _, column in known]
    ends = [x for r in ratios if not verdicts.unknown(r.low, r.high) for x in (r.low, r.high)]
    range_ = axes.ratio([r.median for r in ratios], ends)
    axes.arrows(fig, range_, {y: (r.low, r.high) for y, r in zip(places, ratios, strict=True)}, ink)
    # on top: many bars end below the screen's edge
    fig.update_xaxes(**range_, title_text=axis, side="top", title_standoff=6)
    axes.named_rows(fig, places, linecolor="rgba(0,0,0,0)")
    axes.line_at(fig, theme, x=1)
    above = _ABOVE
    if alone:
        above += _THICKER
        axes.row_labels(fig, {y: (left, "") for y, (left, _) in named.items()}, above + line, theme)
        named = {y: ("", right) for y, (_, right) in named.items()}
    axes.row_labels(fig, named, above, theme)
    above = _AXIS + _TITLE * axis.count("<br>")
    fig.update_layout(
        margin=dict(l=8, r=12, t=fig.layout.margin.t + above, b=10), height=fig.layout.height + above - _AXIS
    )
    return fig


def _axis(comparison: Comparison, letters: Sequence[str]) -> str:
    """The title of the axis: what the names of the rows are made of, then what the bars are."""
    parts = ["implementation"] if comparison.by != "implementation" else []
    parts += _changing(comparison)
    parts += [comparison.by] if len(letters) > 2 and comparison.by != "run" else []
    over = f"time of {letters[0]} over time{'' if len(letters) > 2 else f' of {letters[1]}'} (log)"
    return "<br>".join([template.wrapped(f"rows: {', '.join(parts)}")] * bool(parts) + [over])


def _look(verdict: str | None, theme: str) -> dict:
    """A bar's colour: that of its verdict; grey where it has none, hatched where it is none (None)."""
    muted = template.THEMES[theme]["line"]
    if verdict is None:
        hatched = dict(shape="/", fgcolor=muted, bgcolor="rgba(0,0,0,0)", size=6)
        return dict(marker=dict(color=muted, pattern=hatched, line=dict(color=muted, width=1)))
    colours = {"faster": template.FASTER, "slower": template.SLOWER}
    return dict(
        marker=dict(color=colours.get(verdict, muted)), opacity=_FAINT if verdict == "inconclusive" else 1.0
    )


def letter(number: int) -> str:
    """The name of a run among those compared: A, B, …, Z, AA, …"""
    before, last = divmod(number, 26)
    return (letter(before - 1) if before else "") + chr(ord("A") + last)


def names(comparison: Comparison) -> list[str]:
    """What columns are called: letters for runs, which have long names, else what they stand for."""
    if comparison.by == "run":
        return [letter(n) for n in range(len(comparison.columns))]
    return [short(name) for name in comparison.columns]


def headline(found: Speedup) -> str:
    """ "▲ 1.84× faster [1.80, 1.88]"."""
    text = verdicts.headline(found.median, found.words)
    return verdicts.with_interval(text, found.words, found.low, found.high)


def sentence(comparison: Comparison, column: int, letters: Sequence[str]) -> str:
    """What a column says against the base: "B against A: faster in 3, slower in 1 of 14 rows; …"; "" where
    other devices or workloads leave no verdict (``differences.sentence``)."""
    ratios = comparison.ratios(column)
    own, base = letters[column], letters[0]
    if not ratios and comparison.differences(column):
        return ""
    if not ratios:
        return f"{own} has no time that can be compared with {base}."
    called = dict(zip(map(id, comparison.rows), labels(comparison), strict=True))
    decided = [pair for pair in ratios if verdicts.decided(pair[1].verdict)] or ratios
    row, first = max(decided, key=lambda pair: abs(math.log(pair[1].median)))
    if len(ratios) == 1:
        return f"{own} against {base}: {headline(first)} ({called[id(row)]})."
    counts = Counter(found.verdict for _, found in ratios)
    same = words("same", max(found.same_within for _, found in ratios))
    said = [
        f"{'the ' if kind == 'same' else ''}{same if kind == 'same' else words(kind)} in {counts[kind]}"
        for kind in VERDICTS
        if counts[kind]
    ]
    mean = math.exp(sum(math.log(found.median) for _, found in ratios) / len(ratios))
    text = f"{own} against {base}: {', '.join(said)} of {len(ratios)} rows; "
    times = numbers.ratio(max(mean, 1 / mean))
    text += f"{times}{' slower' if mean < 1 and times != '1.00×' else ''} in the geometric mean"
    if verdicts.decided(first.verdict):
        text += f"; the largest difference is {called[id(row)]}, {headline(first)}"
    return f"{text}."


def labels(comparison: Comparison, values_only: bool = False) -> list[str]:
    """What tells each row from the others: "v3_hopper seq=512", or "v3_hopper 512"."""
    return [
        " ".join(w for w in (short(row.impl) if row.impl else "", case) if w) or row.op
        for row, case in zip(comparison.rows, cases(comparison, values_only), strict=True)
    ]


def cases(comparison: Comparison, values_only: bool = False) -> list[str]:
    """What tells the case of each row from the others, "seq=512"; "" where all are of one case."""
    keys = _changing(comparison)
    return [
        ", ".join(_value(k, v) if values_only else f"{k}={v}" for k in keys if (v := one.get(k)) is not None)
        for one in whole(map(_parts, comparison.rows))
    ]


def _value(key: str, value: object) -> str:
    return str(value).replace("_", " ") if key == "mask" else str(value)


def _changing(comparison: Comparison) -> dict[str, list]:
    return varying_values([_parts(row) for row in comparison.rows])


def table(comparison: Comparison, letters: Sequence[str]) -> pd.DataFrame:
    """A line per row: the verdict and ratio of each column over the base, then the times, then whether the
    machine code is the same. None where there is nothing."""
    rows = comparison.rows
    unit, factor = numbers.time_unit(c.time.median for row in rows for c in row.cells if c.time)
    found: dict[str, list] = {}
    if comparison.by != "implementation":
        found["implementation"] = [short(row.impl) for row in rows]
    found["case"] = [text or "the case" for text in cases(comparison)]
    later = list(enumerate(letters))[1:]
    for n, letter in later:
        ratios = [row.cells[n].verdict for row in rows]
        found[f"{letter}: verdict"] = [_verdict(row, n) for row in rows]
        found[f"{letter}: speed-up (×)"] = [r and r.median for r in ratios]
        found[f"{letter}: low (×)"] = [r and r.low for r in ratios]
        found[f"{letter}: high (×)"] = [r and r.high for r in ratios]
        if comparison.differences(n):
            unlike = [row.cells[n].difference for row in rows]
            found[f"{letter}: time over {letters[0]}'s (×)"] = [r and 1 / r.median for r in unlike]
    for n, letter in enumerate(letters):
        found[f"{letter} ({unit})"] = [
            c.time and c.time.median * factor for c in (row.cells[n] for row in rows)
        ]
    if comparison.by in ("run", "commit"):
        for n, letter in later:
            found[f"{letter}: same machine code"] = [
                _same_code(row, row.cells[0], row.cells[n]) for row in rows
            ]
    return pd.DataFrame(found)


def tidy(comparison: Comparison) -> pd.DataFrame:
    """A line per row and column with everything, numbers unrounded: what a CSV file holds."""
    lines = []
    for row in comparison.rows:
        for name, cell in zip(comparison.columns, row.cells, strict=True):
            d = differences.times(cell)
            line = {"op": row.op, "impl": row.impl, **row.case, "dtype": row.dtype, "device": row.device}
            line |= {comparison.by: name, "run": cell.run.id if cell.run else None, "mode": row.mode}
            line |= {"status": cell.status}
            line |= {f"{k}_ms": cell.time and getattr(cell.time, k) for k in ("median", "low", "high")}
            line |= {k: cell.verdict and getattr(cell.verdict, n) for k, n in _RATIO.items()}
            line |= {f"time_over_base{end}": d and d[n] for n, end in enumerate(("", "_low", "_high"))}
            line |= {"no_verdict": cell.unlike and cell.unlike.text}
            lines.append(line | {"source_hash": cell.record and cell.record.source_hash})
    return pd.DataFrame(lines)


_RATIO = {"speedup": "median", "speedup_low": "low", "speedup_high": "high", "verdict": "verdict"}


def why(comparison: Comparison, letters: Sequence[str], row: int, column: str) -> str:
    """Why a cell of ``table`` is empty."""
    cells = comparison.rows[row].cells
    letter = column.partition(":")[0].partition(" (")[0]
    own = cells[letters.index(letter)] if letter in letters else cells[0]
    if column.endswith("machine code"):
        return "the source of one of them is not recorded: a peer, or no result"
    if own.unlike:
        return f"no verdict: {own.unlike.text}"
    if "time over" in column:
        return "one workload on one device: the speed-up says it"
    for name, cell in ((letter, own), (letters[0], cells[0])):
        if cell.status == SEVERAL:
            return f"several cases of one run match here in {name}: leave fewer keys out"
        if cell.status != "ok":
            return f"{name}: {_STATES[cell.status]}"
    return "they have no time in the same mode: eager or graph, cold or warm"


def _parts(row: Row) -> dict:
    return row.case | {"op": row.op, "dtype": row.dtype, "device": row.device}


def _verdict(row: Row, column: int) -> str:
    cell = row.cells[column]
    if cell.unlike:
        return f"no verdict: {' and '.join(differences.kinds(cell.unlike))}"
    if cell.ratio:
        return cell.ratio.words
    return _STATES[cell.status] if cell.status != "ok" else "not compared"


def _same_code(row: Row, base: Cell, cell: Cell) -> bool | None:
    hashes = [c.record.source_hash if c.record else None for c in (base, cell)]
    return None if None in hashes else same_code.same(row.op, row.impl, *hashes)
