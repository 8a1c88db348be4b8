"""How one kernel got faster edit by edit: a step per source hash, in the order of its runs."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import plotly.graph_objects as go

from fusescope.charts import axes, captions, numbers, template
from fusescope.charts.colours import colour, short
from fusescope.core import same_code
from fusescope.core.records import Record, Run


@dataclass(frozen=True)
class Edit:
    """One record of the kernel with the run it stands in; two edits are the same source when their hashes are
    equal."""

    run: Run
    record: Record

    @property
    def when(self) -> float:
        return self.run.finished or self.run.started or self.run.created or 0.0


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
    last, first = times[-1].median, times[0].median
    if len(rows) > 1:
        axes.note(
            fig,
            f"<b>{numbers.ratio(first / last)}</b> over the first",
            x[-1],
            last * factor,
            xanchor="left",
            xshift=10,
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
    fig.update_layout(margin=dict(l=8, r=130, t=template.TOP + 14, b=70))
    return fig


def _tick(edit: Edit) -> str:
    day, _, clock = captions.date(edit.when).rpartition(" ")
    return f"{day[:-5]} {clock}<br>{(edit.record.source_hash or '')[:8]}"


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
