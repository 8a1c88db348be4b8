"""Whole models over shapes: of each case the fastest execution mode, or a chosen one, against sdpa, and where
there is none against eager."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pandas as pd
import plotly.graph_objects as go

from fusescope.analysis import rebase
from fusescope.charts import axes, numbers, template, verdicts
from fusescope.charts.bench.speedup import hover, in_order, value_of, verdict
from fusescope.charts.colours import short
from fusescope.core.records import Record

PEERS = ("sdpa", "eager")
"""What cells are compared with, the first of these that was timed: Hugging Face's model with PyTorch's own
attention, or in a decode step, which has no such mode, as it is."""
_ROW, _LINES, _LINE = 64, 3, 15  # pixels of a row, the line breaks that it has room for, pixels of one more
_LONG = 12  # characters of a mode that fit into one line of a cell
_DOUBLINGS = 2  # to full colour: 4 times as fast, or as slow
_USUAL_MASKS = ("full", "causal")  # a model's own, which its name says


@dataclass(frozen=True)
class Cell:
    """One model on one shape. row: the model and what is unusual about the case; record: of the execution
    mode shown, with its speed-up over ``over``, one of PEERS; key: the run and the case as JSON."""

    row: str
    column: str
    size: int
    record: Record
    key: str
    over: str = PEERS[0]

    @property
    def ratio(self) -> float | None:
        return value_of(self.record, self.over)

    @property
    def verdict(self) -> str:
        return verdict(self.record, self.over)


def cells(groups: Iterable[tuple[str, str, list[Record]]], mode: str | None = None) -> list[Cell]:
    """A cell for each (run, title of the model, records of one case) in which ``mode`` has a valid time;
    mode: None for the fastest of the case."""
    found = []
    for run, title, records in groups:
        there = {r.impl for r in records if r.status == "ok" and r.ms}
        over = next((peer for peer in PEERS if peer in there), PEERS[0])
        timed = [r for r in in_order(rebase.rebased(records, over)) if r.status == "ok" and r.ms]
        shown = next((r for r in timed if mode in (None, r.impl)), None)
        if shown:
            case = dict(shown.case)
            size = int(case["batch"]) * int(case["seq"])
            key = json.dumps([run, case], sort_keys=True)
            column = f"{case['batch']:,} × {case['seq']:,}"
            found.append(Cell(_row(title, case), column, size, shown, key, over))
    return sorted(found, key=lambda c: (c.size, c.row))


def figure(some: list[Cell], subtitle: str = "", theme: str = "light") -> go.Figure:
    """Models down and shapes (batch × sequence) across: execution mode, time, and ratio over PEERS in words
    and colour; no colour where the difference is not decided. A click gives the cell's key as
    ``customdata[1]``."""
    if not some:
        return template.empty("No model was measured so yet.", theme)
    rows, columns = sorted({c.row for c in some}), list(dict.fromkeys(c.column for c in some))
    at = {(c.row, c.column): c for c in some}
    grid = [[at.get((name, column)) for column in columns] for name in rows]
    row = _ROW + _LINE * max(0, max(_text(c).count("<br>") for c in at.values()) - _LINES)
    overs = {c.over for c in some}
    fig = template.figure(
        f"Execution mode, time and speed-up over {' or '.join(p for p in PEERS if p in overs)}",
        template.join(subtitle, "batch × sequence"),
        theme,
        height=template.TOP + 50 + row * len(rows),
    )
    fig.add_heatmap(
        x=columns,
        y=rows,
        z=[[None if c is None else _colour(c) for c in line] for line in grid],
        text=[["" if c is None else _text(c) for c in line] for line in grid],
        texttemplate="%{text}",
        textfont=dict(size=11, color=template.THEMES[theme]["ink"]),
        colorscale=template.RATIO_SCALE[theme],
        zmin=-_DOUBLINGS,
        zmax=_DOUBLINGS,
        showscale=False,
        xgap=2,
        ygap=2,
        hoverinfo="skip",
    )
    shown = list(at.values())
    fig.add_scatter(  # what a click or a hover finds: a heat map has no points to select
        x=[c.column for c in shown],
        y=[c.row for c in shown],
        customdata=[(f"<b>{c.row}</b><br>{hover(c.record, c.over)}", c.key) for c in shown],
        hovertemplate="%{customdata[0]}<extra></extra>",
        mode="markers",
        marker=dict(symbol="square", size=44, opacity=0, maxdisplayed=1),
        selected=dict(marker=dict(opacity=0)),
        unselected=dict(marker=dict(opacity=0)),
    )
    plain = dict(showgrid=False, type="category", ticks="", linecolor="rgba(0,0,0,0)")
    ends = [-0.5, len(rows) - 0.5]  # without the room that plotly leaves around points
    fig.update_yaxes(**plain, range=ends[::-1], categoryorder="array", categoryarray=rows)
    ends = [-0.5, len(columns) - 0.5]
    fig.update_xaxes(**plain, range=ends, side="top", categoryorder="array", categoryarray=columns)
    fig.update_layout(margin=dict(t=fig.layout.margin.t + 14))
    axes.room(fig, rows, title=False, bottom=10)
    return fig


def table(some: list[Cell]) -> pd.DataFrame:
    """The cells as lines for a screen too narrow for the figure, what decides first."""
    lines = [
        (
            c.row,
            c.column,
            _against(c.verdict, c.ratio),
            short(c.record.impl),
            numbers.time(c.record.ms),
            c.over,
        )
        for c in sorted(some, key=lambda c: (c.row, c.size))
    ]
    return pd.DataFrame(lines, columns=["model", "batch × seq", "speed-up", "mode", "time", "over"])


def summary(some: list[Cell]) -> str:
    """The geometric mean of the ratios and how many are faster, by what they are over, in one sentence."""
    parts = []
    for peer in PEERS:
        own = [c for c in some if c.over == peer and c.ratio]
        if own:
            mean = math.exp(sum(math.log(c.ratio) for c in own) / len(own))
            faster = sum(c.verdict == "faster" for c in own)
            count = f"{len(own)} cell" + "s" * (len(own) != 1)
            parts.append(f"{numbers.ratio(mean)} {peer} over {count}, faster in {faster}")
    if not parts:
        return f"No cell of {len(some)} has a time of {' or '.join(PEERS)} to compare with."
    return (
        f"Geometric mean {'; '.join(parts)}. Ratios of the medians of one run, with intervals made of those "
        "of the two times: not paired."
    )


def _row(title: str, case: Mapping) -> str:
    """ "GPT-2, decode", "BERT base, unequal lengths, bigbird"."""
    mask = str(case.get("mask") or "full")
    unusual = [
        str(case.get("phase") or ""),
        "" if case.get("lengths") in (None, "fixed") else "unequal lengths",
        "" if mask in _USUAL_MASKS else mask.replace("_", " "),
    ]
    return ", ".join(text for text in (title, *unusual) if text)


def _colour(cell: Cell) -> float:
    decided = verdicts.decided(cell.verdict) and cell.ratio
    return max(-_DOUBLINGS, min(_DOUBLINGS, math.log2(cell.ratio))) if decided else 0.0


def _text(cell: Cell) -> str:
    name = short(cell.record.impl)
    name = name.replace("-", "-<br>") if len(name) > _LONG else name
    lines = [f"<b>{name}</b>", numbers.time(cell.record.ms)]
    if cell.record.impl != cell.over:
        lines.append(_against(cell.verdict, cell.ratio) + f" {cell.over}" * (cell.over != PEERS[0]))
    return "<br>".join(lines)


def _against(word: str, ratio: float | None) -> str:
    """ "▲ 2.03×", "▼ 1.20×", "≈ 1.00×", "?"; "n/a" without a time of the peer."""
    if ratio is None:
        return numbers.NA
    if word.startswith(verdicts.INCONCLUSIVE):
        return verdicts.sign(word)
    return f"{verdicts.sign(word)} {numbers.ratio(1 / ratio if word == 'slower' else ratio)}"
