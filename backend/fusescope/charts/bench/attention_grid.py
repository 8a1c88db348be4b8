"""Attention over many masks and shapes: our best kernel against the best peer of each cell, and what there is
besides the map (``attention_map``)."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

import plotly.graph_objects as go

from fusescope.analysis.compare import ratios
from fusescope.charts import axes, captions, numbers, template, verdicts
from fusescope.charts.colours import OURS, kind, short
from fusescope.core.records import Record, Speedup

_ROW, _MOST = 24, 60  # pixels per cell of the list; most cells in it
DENSE = ("full", "causal")
NONE = "No case yet with times of both our kernels and a peer."
OPEN = "inconclusive"
_NOT_PEERS = ("composed",)  # made of this project's own operators


@dataclass(frozen=True)
class Cell:
    """One mask on one shape (and dtype and device): times in ms by ``mode``; ratio is best peer over ours,
    above 1 = ours is faster; compared: with its interval (``analysis.compare.ratios.over``)."""

    mask: str
    shape: str
    size: int
    dtype: str
    mode: str
    ours: str
    ours_ms: float
    peer: str
    peer_ms: float
    tflops: float
    executed_tflops: float
    compared: Speedup | None
    case: str  # its parameters, as JSON

    @property
    def ratio(self) -> float:
        return self.peer_ms / self.ours_ms

    @property
    def verdict(self) -> str:
        return self.compared.verdict if self.compared else OPEN


def cells(records: Iterable[Record], mode: str = "graph") -> list[Cell]:
    """A cell for each case that has a right record of ours and of a peer in this mode, smallest shape first.

    Of several records of one implementation on a case the last counts; "auto" is one of ours.
    """
    found: dict[tuple, dict[str, Record]] = {}
    for r in records:
        timed = r.op == "attention" and r.status == "ok" and r.time_of(mode) is not None
        if timed and r.impl not in _NOT_PEERS:
            found.setdefault((r.case_key, r.dtype), {})[r.impl] = r
    made = []
    for group in found.values():
        ours = [r for r in group.values() if kind(r.impl) == "ours"]
        peers = [r for r in group.values() if kind(r.impl) == "peer"]
        if ours and peers:
            best, rival = (min(some, key=lambda r: r.time_of(mode).median) for some in (ours, peers))
            made.append(_cell(best, rival, mode))
    return sorted(made, key=lambda c: (c.size, c.shape, c.mask, c.case))


def _cell(best: Record, rival: Record, mode: str) -> Cell:
    c = best.case
    shape = (
        f"{c['batch']}×{c['heads']}"
        + (f"/{c['kv_heads']}" if c["kv_heads"] != c["heads"] else "")
        + f"×{c['seq']}"
        + (f"/{c['seq_k']}" if c["seq_k"] != c["seq"] else "")
        + f"×{c['head_dim']}"
    )
    extra = f" + {c['bias']} bias" if c.get("bias", "none") != "none" else ""
    own, other = best.time_of(mode), rival.time_of(mode)
    ms = own.median
    return Cell(
        c["mask"] + extra,
        shape,
        c["batch"] * c["heads"] * c["seq"] * c["seq_k"],
        best.dtype,
        mode,
        best.impl,
        ms,
        rival.impl,
        other.median,
        best.tflops.effective * best.ms / ms,
        best.tflops.executed * best.ms / ms,
        ratios.over(rival, best, mode),
        json.dumps(dict(c), sort_keys=True),
    )


def geometric_mean(some: Iterable[Cell]) -> float | None:
    """Of the ratios; None without a cell."""
    logs = [math.log(c.ratio) for c in some]
    return math.exp(sum(logs) / len(logs)) if logs else None


def worst_first(some: list[Cell], subtitle: str = "", theme: str = "light") -> go.Figure:
    """One dot per cell (at most 60), the lowest ratio on top; the case for clicks is in ``customdata[1]``."""
    if not some:
        return template.empty(NONE, theme)
    chosen = sorted(some, key=lambda c: c.ratio)[:_MOST]
    c = template.THEMES[theme]
    names = [f"{mask_name(i.mask)}  {i.shape}" for i in chosen]
    part = f"the worst {len(chosen)} of {len(some)} cells" if len(chosen) < len(some) else ""
    height = 140 + _ROW * len(chosen)
    fig = template.figure("Worst cells first", template.join(subtitle, part), theme, height=height)
    fig.add_scatter(
        x=[i.ratio for i in chosen],
        y=names,
        mode="markers+text",
        text=[f"  {numbers.ratio(i.ratio)}{doubt(i)} {short(i.ours)} / {short(i.peer)}" for i in chosen],
        textposition="middle right",
        textfont=dict(size=11, color=c["muted"]),
        hovertemplate="%{customdata[0]}<extra></extra>",
        customdata=[(hover(i), i.case) for i in chosen],
        marker=dict(
            size=9,
            color=[c["muted"] if doubt(i) else _sides(i, template.SLOWER, template.FASTER) for i in chosen],
            symbol=["circle-open" if doubt(i) else _sides(i, "x", "circle") for i in chosen],
        ),
    )
    axes.line_at(fig, theme, x=1)
    shown = [i.ratio for i in chosen]
    axis = axes.ratio([*shown, 1.6 * max(shown)])  # names stand right of their dots
    fig.update_xaxes(**axis, title_text="speed-up over the best peer (log)", side="top")
    fig.update_yaxes(range=[len(set(names)) - 0.5, -0.5], type="category")  # no room above the first
    axes.room(fig, names, title=False)
    return fig


def rates(some: list[Cell], ceiling: float | None, subtitle: str = "", theme: str = "light") -> go.Figure:
    """TFLOP/s of our best kernel per cell, over live elements and over executed tiles, against the measured
    matrix rate (TFLOP/s)."""
    if not some:
        return template.empty(NONE, theme)
    names = [f"{mask_name(i.mask)}  {i.shape}" for i in some]
    c = template.THEMES[theme]
    fig = template.figure("Rate of our best kernel", subtitle, theme, height=130 + _ROW * len(some))
    for name, values, symbol in (
        ("live elements", [i.tflops for i in some], "circle"),
        ("executed tiles", [i.executed_tflops for i in some], "circle-open"),
    ):
        fig.add_scatter(
            x=values,
            y=names,
            mode="markers",
            name=name,
            marker=dict(size=9, color=OURS, symbol=symbol),
            customdata=[(hover(i), i.case) for i in some],
            hovertemplate="%{x:.3g} TFLOP/s<br>%{customdata[0]}<extra>" + name + "</extra>",
        )
    top = max(i.executed_tflops for i in some)
    if ceiling:
        fig.add_vline(x=ceiling, line=dict(color=c["ink"], width=1.5, dash="dash"))
        label = f"measured in a large GEMM: {numbers.three(ceiling)} TFLOP/s"
        fig.add_annotation(
            x=ceiling, y=1, yref="paper", text=label, showarrow=False, xanchor="right", yanchor="bottom"
        )
    fig.update_xaxes(range=[0, 1.08 * max(top, ceiling or 0)], title_text="TFLOP/s")
    axes.downwards(fig, names, type="category")
    below = dict(orientation="h", yref="container", y=0, yanchor="bottom")
    fig.update_layout(margin=dict(b=88), showlegend=True, legend=below)
    return fig


def lost(some: Iterable[Cell]) -> list[Cell]:
    """The cells that are proven slower than their best peer, the worst first."""
    return sorted((c for c in some if c.verdict == "slower"), key=lambda c: c.ratio)


def summary(some: list[Cell]) -> str:
    """One sentence: geometric means of all cells and of masks that leave elements out, and cells lost."""
    if not some:
        return NONE
    slower = lost(some)
    undecided = sum(bool(doubt(c)) for c in some)
    sparse = [c for c in some if c.mask.split(" + ")[0] not in DENSE]
    count = f"{len(some)} cell{'' if len(some) == 1 else 's'}"
    text = f"Geometric mean {numbers.ratio(geometric_mean(some))} over {count}"
    if 0 < len(sparse) < len(some):
        dense = " and ".join(DENSE)
        text += (
            f", {numbers.ratio(geometric_mean(sparse))} over the {len(sparse)} with masks other than {dense}"
        )
    if undecided:
        text += f"; {undecided} not proven either way (?)"
    if not slower:
        return text + "; no cell is proven slower than its best peer."
    worst = slower[0]
    text += f"; proven slower in {len(slower)}, at worst {numbers.ratio(1 / worst.ratio)} slower "
    return text + f"({worst.mask}, {worst.shape}, than {short(worst.peer)})."


def doubt(c: Cell) -> str:
    """What is set behind a ratio that is not proven."""
    return "?" if c.verdict == OPEN else ""


def _sides(c: Cell, slower: str, faster: str) -> str:
    return slower if c.ratio < 1 else faster


def mask_name(text: str) -> str:
    """A mask as a row is named: without the path of a file, and without the length that a shape says."""
    if not text.startswith("file:"):
        return text.replace("_", " ").replace(":", ", ", 1)
    name = text.rsplit("/", 1)[-1].removesuffix(".npz")
    blocks = re.fullmatch(r"blocks(\d+)-(\w+)-\d+", name)
    return f"{blocks[2].replace('_', ' ')}, {blocks[1]} × {blocks[1]} blocks" if blocks else name


def hover(c: Cell) -> str:
    interval = verdicts.interval("", c.compared.low, c.compared.high) if c.compared else ""
    lines = [
        f"<b>{mask_name(c.mask)}</b> {c.shape}, {c.dtype}",
        f"{short(c.ours)} {numbers.time(c.ours_ms)}",
        f"best peer: {short(c.peer)} {numbers.time(c.peer_ms)}",
        f"{numbers.ratio(c.ratio)} {interval}{', not proven' if doubt(c) else ''}, {captions.mode(c.mode)}",
    ]
    return "<br>".join(lines)
