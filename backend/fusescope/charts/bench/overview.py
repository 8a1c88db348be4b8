"""Speed-up over the baseline in every case at once: a cell per implementation and case, coloured and written,
never by colour alone."""

from __future__ import annotations

import math
import re

import plotly.graph_objects as go

from fusescope.charts import captions, numbers, template, verdicts
from fusescope.charts.bench.speedup import hover, value_of, verdict
from fusescope.charts.colours import short
from fusescope.charts.tables import cases, varying
from fusescope.core.records import Record
from fusescope.core.verdict import SAME_WITHIN, words

_FULL = 4.0  # doublings to full colour: 16 times as fast, or as slow
_TALL = 280  # pixels of all rows above which columns are named at the top
_ROW, _BRIEF_ROW = 34, 24  # pixels of a row with one line, and of one of many
_MANY = 9  # columns above which a cell of the narrowest chart has little room
_FEW = 6  # columns that have room for names of several lines, which stand slanted
_LINE, _COLUMN = 40, 12  # characters of a line of a case's values, as a row and as a column
_LONGEST, _WIDE = 26, 16  # characters of a name, and of one that a column has room for
_NAMED = 3  # parameters that fit into the title
_BRIEF = 16  # cases above which they are grouped by mask, and named by their values
_SHORT = {
    "unsupported": "–",
    "out of memory": "oom",
    "timed out": "time",
    "wrong": "✗",
    "crashed": "fail",
    "error": "fail",
    "not compared": "n/a",
}


def cells(records: list[Record], baseline: str, subtitle: str = "", theme: str = "light") -> go.Figure:
    """A table of colours: ``records`` of several cases, one implementation per row and one case per column,
    or the reverse where there are more cases or their names are long. ▲ 1.84 is 1.84× faster, ▼ 10.3 is 10.3×
    slower, ≈ same, ? inconclusive; what has no speed-up says why."""
    if not records:
        return template.empty("No record yet.", theme)
    c = template.THEMES[theme]
    keys, groups = varying(records), cases(records)
    if brief := len(groups) > _BRIEF:
        groups = dict(sorted(groups.items(), key=lambda group: str(group[1][0].case.get("mask"))))
    names = [re.sub(r"file:\S*/", "", name) for name in groups]  # of a mask's file the name is enough
    names = [name.replace("sliding_window", "sliding window") for name in names]
    many = len({r.impl for r in records}) > _MANY
    if brief or (many and len(keys) <= _NAMED):  # the text above names them, and cells need the room
        names = [_values(name, _LINE if brief else _COLUMN) for name in names]
    else:
        names = [
            name.removeprefix(f"{keys[0]}=") if len(keys) == 1 else name.replace(", ", "<br>")
            for name in names
        ]
    found = {(r.impl, at): r for at, rows in enumerate(groups.values()) for r in rows}
    impls = sorted({r.impl: None for r in records}, key=lambda impl: _middle(impl, found, baseline))
    wide = any("<br>" in n for n in names) and not (many and len(names) <= _FEW)
    down = wide or len(names) > max(8, len(impls))
    grid = [[found.get((impl, at)) for at in range(len(names))] for impl in impls]
    labels = [_label(short(i), down and len(impls) <= _MANY) for i in impls]
    labels = [f"<b>{label}</b>" if i == baseline else label for i, label in zip(impls, labels, strict=True)]
    if down:
        grid, rows, columns = (
            [list(row[::-1]) for row in zip(*grid, strict=True)][::-1],
            names[::-1],
            labels[::-1],
        )
    else:
        rows, columns = labels, names
    mode = next((r.speedup.of for r in records if r.speedup), None)
    crowded = many and len(columns) > _FEW
    first = template.join(subtitle, captions.mode(mode) if mode else "")
    same = words("same", max((r.speedup.same_within for r in records if r.speedup), default=SAME_WITHIN))
    lines = [
        first,
        _same(records, keys),
        f"cases: {', '.join(keys)}" if brief and len(keys) > _NAMED else "",
        f"▲ times faster, ▼ times slower, ≈ {same}, ? inconclusive (too noisy), ✗ wrong, – unsupported",
    ]
    by = f" by {', '.join(keys) if len(keys) <= _NAMED else 'case'}" if keys else ""
    tall = (_BRIEF_ROW if brief else _ROW) + 15 * max(n.count("<br>") for n in rows)
    fig = template.figure(
        f"Speed-up over {short(baseline)}{by}",
        "<br>".join(line for line in lines if line),
        theme,
        height=150 + tall * len(rows),
    )
    fig.add_heatmap(
        z=[[_colour(r, baseline) for r in row] for row in grid],
        zmin=-_FULL,
        zmax=_FULL,
        colorscale=template.RATIO_SCALE[theme],
        x=list(range(len(columns))),
        y=list(range(len(rows))),
        xgap=2,
        ygap=2,
        showscale=False,
        text=[[_text(r, baseline) for r in row] for row in grid],
        texttemplate="%{text}",
        textfont=dict(size=12 if len(columns) <= 6 else 9 if crowded else 11, color=c["ink"]),
        customdata=[[hover(r, baseline) if r else "not measured" for r in row] for row in grid],
        hovertemplate="%{customdata}<extra></extra>",
        hoverongaps=True,
    )
    plain = dict(showgrid=False, ticks="", linecolor="rgba(0,0,0,0)")
    fig.update_xaxes(  # a slanted name may stand out at the right: plotly would leave the last one out
        **plain,
        tickvals=list(range(len(columns))),
        ticktext=columns,
        autotickangles=[0, -35, -60],
        ticklabeloverflow="allow",
    )
    if tall * len(rows) > _TALL:  # the names would stand below the screen's edge
        fig.update_xaxes(side="top")
        room = 90 if many else 50  # many stand steeper
        fig.update_layout(margin_t=(fig.layout.margin.t or 80) + room, height=fig.layout.height + room)
    fig.update_yaxes(
        **plain,
        tickvals=list(range(len(rows))),
        ticktext=[f"{r} " for r in rows],
        tickfont=dict(size=11 if many else 13),
    )
    return fig


def _label(name: str, above: bool) -> str:
    """An implementation's name as far as there is room; over a column on several lines."""
    name = name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"
    return name.replace("-", "-<br>") if above and len(name) > _WIDE else name


def _values(name: str, most: int) -> str:
    """A case's name without its parameters' names, values that do not fit on lines of their own: "16,
    2048<br>sliding window<br>right=0"; most: characters of a line."""
    lines = [""]
    for value in (part.partition("=")[2] or part for part in name.split(", ")):
        for text in value.replace("_", " ").split(":"):
            lines += [""] * bool(lines[-1] and len(lines[-1] + text) > most)
            lines[-1] += ", " * bool(lines[-1]) + text
    return "<br>".join(lines)


def _middle(impl: str, found: dict, baseline: str) -> float:
    """The geometric mean of its speed-ups, by which rows are ordered; nothing to show comes last, which is
    lowest."""
    values = [v for (i, _), r in found.items() if i == impl and (v := value_of(r, baseline)) and v > 0]
    return sum(map(math.log, values)) / len(values) if values else -math.inf


def _colour(record: Record | None, baseline: str) -> float | None:
    value = value_of(record, baseline) if record else None
    if value is None or value <= 0:
        return 0.0  # the page's own colour; a missing value would lose its text
    decided = verdicts.decided(verdict(record, baseline))  # else no colour, whatever the median
    return max(-_FULL, min(_FULL, math.log2(value))) if decided else 0.0


def _text(record: Record | None, baseline: str) -> str:
    if record is None:
        return ""
    word, value = verdict(record, baseline), value_of(record, baseline)
    if value is None:
        return _SHORT.get(word, word)
    if word.startswith(verdicts.INCONCLUSIVE):
        return verdicts.sign(word)
    value = 1 / value if word == "slower" else value
    figure = numbers.three(value)
    return "1" if record.impl == baseline else f"{verdicts.sign(word)}{figure}"


def _same(records: list[Record], keys: list[str]) -> str:
    """What all cases have in common."""
    first = dict(records[0].case)
    alike = {k: v for k, v in first.items() if k not in keys and all(r.case.get(k) == v for r in records)}
    return captions.case_of(alike)
