"""What changed between two profiles: whether they may be compared, time of a step, every figure of both, then
kernels, operators or modules."""

from __future__ import annotations

from dataclasses import asdict

import pandas as pd
import streamlit as st

from fusescope.analysis.compare import profiled
from fusescope.analysis.compare.profiled import Answer
from fusescope.analysis.profile import diff as profile_diff
from fusescope.analysis.profile import metrics as profile_metrics
from fusescope.charts import numbers
from fusescope.charts.profile import changes
from fusescope.core.records import Run
from pages._ui.app import cached_chart, run_data, url
from pages._ui.forms import fields
from pages._ui.profiler import advice, baseline, benchmarks, data, sentences
from pages._ui.profiler.data import Profile
from pages._ui.widgets import elements, style
from pages._ui.widgets.text import md, run_name

_AS = {"time": False, "speed-up": True}
_MUCH = 1.25  # times as long as without the profiler


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
        filter_mode=fields.IN_LINES,
    )
    state.keep("against", other)
    a, b = data.load(other), found
    answer = baseline.judged(a, b)
    baseline.told(answer)
    _step(a, b, answer)
    baseline.table(a, b, answer, b.name("metrics"))
    kinds = [by for by, (table, *_) in profile_diff.BY.items() if a.has(table) and b.has(table)]
    if not kinds:
        st.info("Different profilers: no kernels, operators or modules to compare.")
        return
    by = fields.pick(state, "by", "by", kinds, scope=found.id, box=middle)
    rows, steps = _rows(a, b, by)
    if answer.comparable:
        how = fields.segments(state, "as", "as", _AS, box=right)
        _totals(rows, by)
    else:
        how = next(iter(_AS))
    if answer.work is not False:
        _chart(a, b, rows, steps, by, how, answer)
    _table(b, rows, answer)
    elements.note(
        "Times are per step. Differences up to 2 % count as the same. Profiled times are not latencies: "
        "compare benchmarks "
        "for a verdict."
    )


def _chart(
    a: Profile,
    b: Profile,
    rows: list[profile_diff.Difference],
    steps: tuple[int, int],
    by: str,
    how: str,
    answer: Answer,
) -> None:
    """The largest changes; on two devices without a verdict."""
    relative = _AS[how]
    if not changes.shown(rows, relative):
        elements.note(changes.nothing(rows, by))
        return
    both = f"a: {run_name(a.run)}, b: {run_name(b.run)}"
    subtitle = f"{changes.plain(both)} · {steps[0]} and {steps[1]} steps"
    fig = cached_chart.once(
        ("changes", a.id, a.stamp, b.id, b.stamp, by, how, both, answer.comparable, style.theme()),
        lambda: changes.bars(rows, by, relative, subtitle, style.theme(), answer.comparable),
    )
    elements.chart(fig, b.name("changes"), pd.DataFrame([asdict(r) for r in rows]))


def _table(b: Profile, rows: list[profile_diff.Difference], answer: Answer) -> None:
    """All rows; faster and slower are said where the two may be compared."""
    if not rows:
        return
    table = pd.DataFrame([asdict(r) for r in rows])
    if not answer.comparable:
        table = table.drop(columns=["state", "speedup"])
    if answer.work is False:
        table = table.drop(columns="delta_ns")
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


def _unlike(other: Run, run: Run) -> tuple[bool, ...]:
    """A sort key: the same operator first, then the same work, then the same device, then the newest."""
    answer = profiled.judge(other, run)
    return other.spec.get("op") != run.spec.get("op"), answer.work is not True, answer.devices is not None


def _comparable(other: Profile) -> bool:
    return any(other.has(table) for table, *_ in profile_diff.BY.values())


def _rows(a: Profile, b: Profile, by: str) -> tuple[list[profile_diff.Difference], tuple[int, int]]:
    table = profile_diff.BY[by][0]
    steps = tuple(max(1, p.rows("steps")) for p in (a, b))
    return profile_diff.diff(sentences.rows(a, table), sentences.rows(b, table), by, *steps), steps


def _step(a: Profile, b: Profile, answer: Answer) -> None:
    """How long a step takes in both, first as a benchmark measured it without the profiler where there is
    one."""
    before, after = (None if ns is None else ns / 1e6 for ns in (advice.step_ns(a), advice.step_ns(b)))
    if not before or not after:
        return
    profiled_times = f"{numbers.time(before)} → {numbers.time(after)}"
    named = f"a: {md(run_name(a.run))}. b: {md(run_name(b.run))}."
    on_device = "On the device, idle time included."
    if not answer.comparable:
        st.subheader(f"A step takes {numbers.time(before)} in a, {numbers.time(after)} in b", anchor=False)
        st.caption(f"{named} {on_device}")
        return
    costs = [_cost(letter, p, ms) for letter, p, ms in (("a", a, before), ("b", b, after))]
    cost = " ".join(text for text in costs if text)
    impls = [str(p.run.spec.get("impl")) for p in (a, b)]
    measured = benchmarks.of(b.run, *impls) if answer.work and impls[0] != impls[1] else None
    if measured and not measured.differs:
        calls = [measured.ms[impl] for impl in impls]
        times = f"{numbers.time(calls[0])} → {numbers.time(calls[1])}"
        st.subheader(f"{_verdict(*calls, 'call')}: {times}, without the profiler", anchor=False)
        address = url.link("runs", run=measured.run)
        under = (
            f"Under the profiler: {_verdict(before, after, 'step').lstrip('▲▼ ').lower()}, {profiled_times}."
        )
        st.markdown(f"By [a benchmark]({address}). {under} {cost}")
        st.caption(f"{named} Steps: {on_device[0].lower()}{on_device[1:]}")
        return
    st.subheader(f"{_verdict(before, after, 'step')}: {profiled_times}", anchor=False)
    if cost:
        st.markdown(f"{cost} The ratio of the steps is not that of the programs.")
    st.caption(f"{named} {on_device}")


def _verdict(before: float, after: float, of: str) -> str:
    """ "▲ A step of b is 1.84× faster", or that it takes the same time."""
    if abs(after - before) <= profile_metrics.TOLERANCE * max(before, after):
        return f"Same {of} time within {100 * profile_metrics.TOLERANCE:.0f} %"
    return f"{'▲' if after < before else '▼'} A {of} of b is {numbers.faster(before / after)}"


def _cost(letter: str, found: Profile, step_ms: float) -> str:
    """What of a profile's step is the profiler's own cost, where that is much by a benchmark of the same
    work, or may be; else ""."""
    measured = benchmarks.of(found.run, str(found.run.spec.get("impl")))
    step = f"a step of {letter}"
    if measured and not measured.differs:
        (ms,) = measured.ms.values()
        if step_ms < _MUCH * ms:
            return ""
        lost = numbers.time(step_ms - ms)
        return (
            f"Of the {numbers.time(step_ms)} of {step}, {lost} are the profiler's own cost: without it a "
            f"call takes {numbers.time(ms)}."
        )
    if advice.waits_for_host(found):
        return (
            f"In {step} the device waits for the host, which the profiler slows down, and no benchmark has "
            "its time without it."
        )
    return ""


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
