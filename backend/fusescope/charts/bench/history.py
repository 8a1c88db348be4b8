"""How one kernel's time changed edit by edit: a step per source hash, in the order of its runs, with an alarm
where it is slower than it was."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
import plotly.graph_objects as go

from fusescope.analysis.compare import regressions
from fusescope.analysis.compare.regressions import Alarm, Series
from fusescope.charts import axes, captions, numbers, template, verdicts
from fusescope.charts.colours import colour, short
from fusescope.core import same_code
from fusescope.core.records import Record, Run, Time


@dataclass(frozen=True)
class Edit:
    """One record of the kernel with its run; two edits are the same source when their hashes are
    equal."""

    run: Run
    record: Record

    @property
    def when(self) -> float:
        return self.run.ended or 0.0


def order(edits: list[Edit]) -> list[Edit]:
    """Oldest first."""
    return sorted(edits, key=lambda e: e.when)


def steps(edits: list[Edit], impl: str, subtitle: str = "", theme: str = "light") -> go.Figure:
    """Median and interval of each run as a step line; a vertical mark wherever the source hash changed. One
    case, one device."""
    rows = [e for e in order(edits) if e.record.time]
    if not rows:
        return template.empty(f"No earlier result of {short(impl)} for this case on this device.", theme)
    c = template.THEMES[theme]
    times = [e.record.time for e in rows]
    unit, factor = numbers.time_unit(t.median for t in times)
    fig = template.figure(f"{short(impl)}, edit by edit", subtitle, theme, height=360)
    x = list(range(len(rows)))
    fig.add_scatter(
        x=x,
        y=[t.median * factor for t in times],
        mode="lines+markers",
        line=dict(color=colour(impl), width=2.4, shape="hv"),
        marker=dict(size=9),
        error_y=axes.interval(
            *([getattr(t, k) * factor for t in times] for k in ("median", "low", "high")), colour(impl)
        ),
        hovertext=[
            f"<b>{short(impl)}</b> {e.record.source_hash or 'no hash'}<br>{captions.date(e.when)}<br>"
            f"median {numbers.three(t.median * factor)} {unit} [{numbers.three(t.low * factor)}, "
            f"{numbers.three(t.high * factor)}], n = {t.n}<br>{resources_text(e.record)}"
            for e, t in zip(rows, times, strict=True)
        ],
        hoverinfo="text",
    )
    for i, (before, after) in enumerate(itertools.pairwise(rows)):
        if before.record.source_hash != after.record.source_hash:
            same = same_code.same(after.record.op, impl, before.record.source_hash, after.record.source_hash)
            fig.add_vline(x=i + 0.5, line=dict(color=c["line"], width=1, dash="dot"))
            axes.note(
                fig,
                "edit, same machine code" if same else "edit",
                i + 0.5,
                1,
                11,
                c["muted"],
                yref="paper",
                yanchor="bottom",
            )
    if len(rows) > 1:
        axes.note(
            fig, _change(times), x[-1], times[-1].median * factor, xanchor="left", xshift=10, align="left"
        )
    step = max(1, -(-len(rows) // 7))
    fig.update_xaxes(
        tickvals=x[::step],
        ticktext=[_tick(e) for e in rows][::step],
        range=[-0.4, len(rows) - 0.2],
        showgrid=False,
        tickangle=0,
    )
    fig.update_yaxes(title_text=f"time per call ({unit})", rangemode="tozero")
    axes.left(fig, ["1,000"])
    fig.update_layout(margin=dict(r=130, t=template.TOP + 14, b=70))
    return fig


def _change(times: list[Time]) -> str:
    """The last time over the first, and over the best where that raises an alarm."""
    first, last = times[0].median, times[-1].median
    text = numbers.ratio(first / last) if last <= first else f"{numbers.ratio(last / first)} slower"
    best = min(times[:-1], key=lambda t: t.median)
    change = regressions.ratio(best, times[-1], "graph", regressions.THRESHOLD)
    if change and change.verdict == "slower":
        return f"<b>▼ {numbers.ratio(1 / change.median)} slower</b><br>than the best"
    return f"<b>{text}</b><br>than the first" if last > first else f"<b>{text}</b><br>over the first"


def _tick(edit: Edit) -> str:
    day, _, clock = captions.date(edit.when).rpartition(" ")
    commit = str(edit.run.environment.get("git_commit") or "")[:8]
    return f"{day[:-5]} {clock}<br>{commit or (edit.record.source_hash or '')[:8]}"


def alarm_sentence(
    found: Sequence[Series], alarms: Sequence[Alarm], threshold: float = regressions.THRESHOLD
) -> str:
    """How many implementations and cases are slower than they were, and the worst."""
    followed, limit = regressions.followed(found), f"{100 * threshold:g} %"
    if not followed:
        return "Nothing was measured twice on one case yet."
    unclear = regressions.undecided(found, threshold)
    if not alarms and unclear:
        return (
            f"No regression found; {unclear:,} of {followed:,} comparisons are too noisy to tell a slow-down "
            f"of {limit}."
        )
    if not alarms:
        return f"No regression: none of {followed:,} implementations and cases is more than {limit} slower."
    worst = alarms[0]
    slower = f"▼ {len(alarms)} of {followed:,} implementations and cases are"
    slower = slower if len(alarms) > 1 else f"▼ 1 of {followed:,} implementations and cases is"
    return (
        f"{slower} more than {limit} slower than the best; the worst is {short(worst.series.impl)}, "
        f"{numbers.ratio(1 / worst.ratio.median)} slower "
        f"{verdicts.interval('slower', worst.ratio.low, worst.ratio.high)} (cause: {worst.cause})."
    )


def alarm_table(alarms: Sequence[Alarm]) -> pd.DataFrame:
    """A line per alarm: what, how much, the cause, the best and the newest run with their commits."""
    unit, factor = numbers.time_unit(p.time.median for a in alarms for p in (a.series.best, a.series.last))
    return pd.DataFrame(
        {
            "implementation": short(a.series.impl),
            "operator": a.series.op,
            "case": captions.case_of(json.loads(a.series.case)),
            "slower (×)": 1 / a.ratio.median,
            "cause": a.cause,
            f"best ({unit})": a.series.best.time.median * factor,
            f"now ({unit})": a.series.last.time.median * factor,
            "best at": f"{captions.date(a.series.best.ended)}, {(a.series.best.commit or 'unknown')[:8]}",
            "now at": f"{captions.date(a.series.last.ended)}, {(a.series.last.commit or 'unknown')[:8]}",
            "dtype": a.series.dtype,
            "device": a.series.device_name,
        }
        for a in alarms
    )


def resources_text(record: Record) -> str:
    """What the compiler said of a record's kernel, in a line; "resources n/a" where it was not kept."""
    r = record.resources
    if r is None:
        return "resources n/a"
    parts = [
        f"{r.registers} registers" if r.registers is not None else "",
        f"{numbers.size(r.shared)} shared" if r.shared is not None else "",
        f"{r.spills} B spilled" if r.spills is not None else "",
        f"{numbers.percent(r.occupancy)} occupancy" if r.occupancy is not None else "",
    ]
    return ", ".join(p for p in parts if p) or "resources n/a"


def resource_changes(before: Record, after: Record) -> list[str]:
    """What an edit changed for the compiler: "registers 64 → 72"; empty where nothing did or nothing is
    known."""
    a, b = before.resources, after.resources
    if a is None or b is None:
        return []
    names = {
        "registers": "registers",
        "shared": "shared memory (bytes)",
        "spills": "spilled bytes",
        "occupancy": "theoretical occupancy",
    }
    changed = []
    for key, name in names.items():
        old, new = getattr(a, key), getattr(b, key)
        if old != new:
            show = numbers.percent if key == "occupancy" else lambda v: numbers.NA if v is None else str(v)
            changed.append(f"{name} {show(old)} → {show(new)}")
    return changed
