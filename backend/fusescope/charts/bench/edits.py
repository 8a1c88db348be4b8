"""New against old: the same kernel on the same cases before and after an edit of its source."""

from __future__ import annotations

import dataclasses

import plotly.graph_objects as go

from fusescope.charts import captions, template
from fusescope.charts.bench import speedup
from fusescope.charts.colours import short
from fusescope.core.records import Record, Run, Speedup


def names(old_run: Run, impl: str) -> tuple[str, str]:
    """The labels of the two: ("v3_x now", "v3_x 10:42")."""
    clock = captions.when(old_run).rpartition(" ")[2]
    return f"{short(impl)} now", f"{short(impl)} {clock}"


def compare(new: Record, old: Record) -> Speedup | None:
    """Old / new of the two medians. The runs were not interleaved; the interval is the widest that the two
    intervals allow.

    None where one of them has no time, or they have none of the same mode.
    """
    after, before = new.time, old.time_of(new.main) if new.main else None
    if before is None:
        return None
    low, high = before.low / after.high, before.high / after.low
    return Speedup(new.main, before.median / after.median, low, high)


def bars(
    new: list[Record], old: list[Record], old_run: Run, impl: str, subtitle: str = "", theme: str = "light"
) -> go.Figure:
    """One bar: now over before, for one case (each list holds that case's record of the kernel)."""
    if not new or not old:
        return template.empty(f"{short(impl)} has no record on both sides of the edit for this case.", theme)
    now, then = names(old_run, impl)
    if new[0].status == "ok":
        after = dataclasses.replace(new[0], impl=now, speedup=compare(new[0], old[0]))
    else:
        after = dataclasses.replace(new[0], impl=now)
    return speedup.bars([after, dataclasses.replace(old[0], impl=then, speedup=None)], then, subtitle, theme)
