"""How one kernel's time changed edit by edit: a step per source hash, in the order of its runs, with an alarm
where it is slower than it was."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd
import plotly.graph_objects as go

from fusescope.analysis.compare import ratios, regressions
from fusescope.analysis.compare.regressions import Alarm, Change, Point, Series
from fusescope.charts import axes, captions, numbers, template, verdicts
from fusescope.charts.colours import colour, short
from fusescope.charts.escape import plain
from fusescope.core import same_code
from fusescope.core.records import Record, Run


@dataclass(frozen=True)
class Edit:
    """One record of the kernel with its run; two edits are the same source when their hashes are
    equal."""

    run: Run
    record: Record

    @property
    def when(self) -> float:
        return self.run.ended or 0.0

    @property
    def point(self) -> Point:
        commit, found = self.run.environment.get("git_commit"), self.record.conditions
        busy = bool(found and found.busy)
        return Point(self.run.id, self.when, commit, self.record.time, self.record.source_hash, busy)


def order(edits: list[Edit]) -> list[Edit]:
    """Oldest first."""
    return sorted(edits, key=lambda e: e.when)


def steps(
    edits: list[Edit],
    impl: str,
    subtitle: str = "",
    theme: str = "light",
    subjects: Mapping[str, str] | None = None,
) -> go.Figure:
    """Median and interval of each run as a step line; a vertical mark wherever the source hash changed. One
    case, one device. subjects: what commits say, shown on hover."""
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
            + _commit(e, subjects or {})
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
            fig, _change(rows), x[-1], times[-1].median * factor, xanchor="left", xshift=10, align="left"
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


def _change(rows: Sequence[Edit]) -> str:
    """The last time over the first, and over the best where that raises an alarm."""
    first, last = rows[0].record, rows[-1].record
    key = last.op, last.impl, last.case_key, last.dtype, rows[-1].run.device_name
    found = regressions.change(Series(*key, last.main, tuple(e.point for e in rows)))
    if found.slower:
        return f"<b>▼ {numbers.ratio(1 / found.ratio.median)} slower</b><br>than the best"
    whole = ratios.ratio(first.time, last.time, last.main, regressions.THRESHOLD)
    if found.open or whole is None or whole.verdict == "inconclusive":
        return f"{_about(first.time.median / last.time.median)}<br>(undecided)"
    if whole.verdict == "same":
        return f"<b>same within {100 * regressions.THRESHOLD:g} %</b><br>as the first"
    return f"<b>{numbers.faster(whole.median)}</b><br>than the first"


def _about(gain: float) -> str:
    """ "1.07× slower than the first", or that three digits show no difference."""
    text = numbers.faster(gain)
    return "about as fast<br>as the first" if text.startswith("1.00×") else f"{text}<br>than the first"


def _commit(edit: Edit, subjects: Mapping[str, str]) -> str:
    commit = str(edit.run.environment.get("git_commit") or "")
    return f"<br>{commit[:8]} {plain(subjects[commit], 80)}" if commit in subjects else ""


def _tick(edit: Edit) -> str:
    day, _, clock = captions.date(edit.when).rpartition(" ")
    commit = str(edit.run.environment.get("git_commit") or "")[:8]
    return f"{day[:-5]} {clock}<br>{commit or (edit.record.source_hash or '')[:8]}"


def alarm_sentence(
    found: Sequence[Series], alarms: Sequence[Alarm], threshold: float = regressions.THRESHOLD
) -> str:
    """How many implementations and cases are slower than they were, and the worst; how many are undecided,
    and why where it is one."""
    followed, limit = len(regressions.followed(found)), f"{100 * threshold:g} %"
    if not followed:
        return "No implementation of ours or yours was measured twice on one case yet."
    undecided = regressions.undecided(found, threshold)
    if not alarms and len(undecided) == 1:
        ((one, why),) = undecided
        return (
            f"No regression found; 1 of {followed:,} comparisons is undecided: {short(one.impl)}, {why.open}."
        )
    if not alarms and undecided:
        return f"No regression found; {len(undecided):,} of {followed:,} comparisons are undecided."
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
    told = [
        {
            "slower (×)": 1 / a.ratio.median,
            "interval": verdicts.interval("slower", a.ratio.low, a.ratio.high),
            "cause": a.cause,
        }
        for a in alarms
    ]
    return _table([a.series for a in alarms], told)


def undecided_table(undecided: Sequence[tuple[Series, Change]]) -> pd.DataFrame:
    """A line per comparison without a verdict: what, how much and why, the best and the newest run with their
    commits."""
    told = [{"now is": _now(why), "undecided because": why.open} for _, why in undecided]
    return _table([one for one, _ in undecided], told)


def table(judged: Sequence[tuple[Series, Change]]) -> pd.DataFrame:
    """A line per comparison with the verdict that it is no slower: what, how much, the best and the newest
    run with their commits."""
    return _table([one for one, _ in judged], [{"now is": _now(found)} for _, found in judged])


def commits(judged: Sequence[Series], subjects: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """By column of these tables, what a cell's commit says."""
    points = {"best at": [one.best for one in judged], "now at": [one.last for one in judged]}
    return {
        column: {_at(p): subjects[p.commit] for p in of if p.commit in subjects}
        for column, of in points.items()
    }


def _now(found: Change) -> str | None:
    """ "1.07× slower [0.800, 1.38]"; None where a time is not positive."""
    r = found.ratio
    if r is None:
        return None
    if r.verdict == "same":
        return f"same within {100 * r.same_within:g} %"
    return f"{numbers.faster(r.median)} {verdicts.interval('slower' if r.median < 1 else '', r.low, r.high)}"


def _at(point: Point) -> str:
    return f"{captions.date(point.ended)}, {(point.commit or 'unknown')[:8]}"


def _table(found: Sequence[Series], told: Sequence[dict]) -> pd.DataFrame:
    """Series with their best and newest run, and what is told of each."""
    unit, factor = numbers.time_unit(p.time.median for one in found for p in (one.best, one.last))
    return pd.DataFrame(
        {
            "implementation": short(one.impl),
            **more,
            "operator": one.op,
            "case": captions.case_of(json.loads(one.case)),
            f"best ({unit})": one.best.time.median * factor,
            f"now ({unit})": one.last.time.median * factor,
            "best at": _at(one.best),
            "now at": _at(one.last),
            "dtype": one.dtype,
            "device": one.device_name,
        }
        for one, more in zip(found, told, strict=True)
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
