"""What changed between two profiles: time of a step first, every figure of both, then kernels, operators or
modules."""

from __future__ import annotations

from dataclasses import asdict

import pandas as pd
import streamlit as st

from fusescope.analysis.profile import diff as profile_diff
from fusescope.analysis.profile import metrics as profile_metrics
from fusescope.charts import numbers
from fusescope.charts.profile import changes
from fusescope.core.records import Run
from pages._ui.app import cached_chart, run_data, url
from pages._ui.forms import fields
from pages._ui.profiler import advice, baseline, data, sentences
from pages._ui.profiler.data import Profile
from pages._ui.widgets import elements, style
from pages._ui.widgets.text import md, run_name

_AS = {"time": False, "speed-up": True}


def draw(state: url.State, found: Profile) -> None:
    """This profile (b) against another one (a)."""
    if sentences.tables_missing(found):
        return
    options = [i for i in data.offered() if i != found.id and _comparable(data.load(i))]
    if not options:
        sentences.lacks("other profile to compare with", "Profile or import a second one.")
        return
    names = {i: f"{run_name(run_data.read(i))} ({i})" for i in options}
    left, middle, right = st.columns([3, 1.4, 1])
    pinned = baseline.pinned(state)
    options.sort(key=lambda i: (i != pinned, *_unlike(run_data.read(i), found.run)))
    other = left.selectbox(
        "baseline (a)",
        options,
        key=fields.seeded(state, "against", options, options[0], found.id),
        format_func=names.get,
    )
    state.keep("against", other)
    a, b = data.load(other), found
    if a.run.device_name != b.run.device_name:
        st.warning(f"Different devices: a is {md(a.run.device_name)}, b is {md(b.run.device_name)}.")
    _step(a, b)
    baseline.table(profile_metrics.compare(advice.metrics(a), advice.metrics(b)), b.name("metrics"))
    kinds = [by for by, (table, *_) in profile_diff.BY.items() if a.has(table) and b.has(table)]
    if not kinds:
        st.info("Different profilers: no kernels, operators or modules to compare.")
        return
    by = fields.pick(state, "by", "by", kinds, scope=found.id, box=middle)
    how = fields.segments(state, "as", "as", _AS, box=right)
    rows, steps = _rows(a, b, by)
    _totals(rows, by)
    both = f"a: {run_name(a.run)}, b: {run_name(b.run)}"
    table = pd.DataFrame([asdict(r) for r in rows])
    subtitle = f"{changes.plain(both)} · {steps[0]} and {steps[1]} steps"
    fig = cached_chart.once(
        ("changes", a.id, a.stamp, b.id, b.stamp, by, how, both, style.theme()),
        lambda: changes.bars(rows, by, _AS[how], subtitle, style.theme()),
    )
    if changes.shown(rows, _AS[how]):
        elements.chart(fig, b.name("changes"), table)
    else:
        elements.note(changes.nothing(rows, by))
    if len(table):
        shown = sentences.units(table).rename(columns={"state": "change", "speedup": "speed-up of b"})
        for column in ("a calls", "b calls"):
            if (shown[column] % 1 == 0).all():
                shown[column] = shown[column].astype("int64")
        elements.table(
            shown.drop(columns=[c for c in ("detail",) if not table["detail"].any()]),
            b.name("changes-table"),
            table,
            height=360,
            why=sentences.why(),
        )
    elements.note(
        "Times are per step. Differences up to 2 % count as the same. Profiled times are not latencies: "
        "compare benchmarks "
        "for a verdict."
    )


def _unlike(other: Run, run: Run) -> tuple[bool, ...]:
    """A sort key: the same work first, then the same device, then the newest."""
    return (
        *(other.spec.get(k) != run.spec.get(k) for k in ("op", "case")),
        other.device_name != run.device_name,
    )


def _comparable(other: Profile) -> bool:
    return any(other.has(table) for table, *_ in profile_diff.BY.values())


def _rows(a: Profile, b: Profile, by: str) -> tuple[list[profile_diff.Difference], tuple[int, int]]:
    table = profile_diff.BY[by][0]
    steps = tuple(max(1, p.rows("steps")) for p in (a, b))
    return profile_diff.diff(sentences.rows(a, table), sentences.rows(b, table), by, *steps), steps


def _step(a: Profile, b: Profile) -> None:
    """How long a step takes in both: the answer."""
    before, after = advice.step_ns(a), advice.step_ns(b)
    if not before or not after:
        return
    times = f"{numbers.time(before / 1e6)} → {numbers.time(after / 1e6)}"
    if abs(after - before) <= profile_metrics.TOLERANCE * max(before, after):
        words = f"Same step time within {100 * profile_metrics.TOLERANCE:.0f} %"
    else:
        words = f"{'▲' if after < before else '▼'} A step of b is {numbers.faster(before / after)}"
    st.subheader(f"{words}: {times}", anchor=False)
    st.caption(f"a: {md(run_name(a.run))}. b: {md(run_name(b.run))}. On the device, idle time included.")


def _change(before: float, after: float) -> str:
    """A total against another, by the rule of the step's time: "same", "▲ 1.84×"."""
    if not before or not after:
        return numbers.NA
    if abs(after - before) <= profile_metrics.TOLERANCE * max(before, after):
        return "same"
    return f"▲ {numbers.ratio(before / after)}" if after < before else f"▼ {numbers.ratio(after / before)}"


def _totals(rows: list[profile_diff.Difference], by: str) -> None:
    """Kernels, operators or modules alone, without idle time."""
    totals = profile_diff.totals(rows)
    # a module's time holds that of the modules in it
    outermost = [r for r in rows if by != "module" or "." not in r.name]
    before, after = sum(r.a_ns for r in outermost), sum(r.b_ns for r in outermost)
    figures = [
        (
            f"{by}s alone",
            _change(before, after),
            f"{numbers.time(before / 1e6)} → {numbers.time(after / 1e6)} per step, without idle time; "
            f"differences up to {100 * profile_metrics.TOLERANCE:.0f} % count as the same",
        )
    ]
    for state, t in totals.items():
        sign = "+" if t["delta_ns"] > 0 else "−" if t["delta_ns"] < 0 else ""
        delta = f"{sign}{numbers.time(abs(t['delta_ns']) / 1e6)} per step" if t["rows"] else None
        figures.append((f"{changes.MARK[state]} {state}", f"{t['rows']}", delta))
    elements.metrics(figures)
