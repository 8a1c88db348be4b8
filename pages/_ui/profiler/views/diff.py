"""What changed between two profiles: by kernel, operator or module, in absolute and relative time."""

from __future__ import annotations

from dataclasses import asdict

import pandas as pd
import streamlit as st

from fusescope.analysis import profile_diff
from fusescope.charts import numbers
from fusescope.charts.profile import changes
from fusescope.core.records import Run
from pages._ui.answer import runs
from pages._ui.app import cached_chart, style, url
from pages._ui.profiler import data, sentences
from pages._ui.profiler.data import Profile
from pages._ui.widgets import elements
from pages._ui.widgets.text import md, run_name

_AS = {"time": False, "ratio": True}


def draw(state: url.State, found: Profile) -> None:
    """This profile (b) against another one (a)."""
    if sentences.tables_missing(found):
        return
    options = [i for i in data.offered() if i != found.id and _comparable(data.load(i))]
    if not options:
        sentences.lacks("partner to compare with", "Profile or import a second one.")
        return
    names = {i: f"{run_name(runs.read(i))} ({i})" for i in options}
    left, middle, right = st.columns([3, 1.4, 1])
    options.sort(key=lambda i: _unlike(runs.read(i), found.run))
    key = state.seed("against", options[0], url.one_of(options), found.id)
    if st.session_state[key] not in options:
        st.session_state[key] = options[0]
    other = left.selectbox("compared with (a)", options, key=key, format_func=names.get)
    state.keep("against", other)
    a, b = data.load(other), found
    kinds = [by for by, (table, *_) in profile_diff.BY.items() if a.has(table) and b.has(table)]
    if not kinds:
        st.info("The two hold no table in common: one is of another profiler.")
        return
    key = state.seed("by", kinds[0], url.one_of(list(profile_diff.BY)), found.id)
    if st.session_state[key] not in kinds:
        st.session_state[key] = kinds[0]
    by = middle.selectbox("by", kinds, key=key)
    how = right.segmented_control(
        "as", list(_AS), key=state.seed("as", "time", url.one_of(list(_AS))), required=True
    )
    state.keep("by", by, kinds[0])
    state.keep("as", how, "time")
    rows, steps = _rows(a, b, by)
    _totals(rows, by)
    words = f"a: {run_name(a.run)}, b: {run_name(b.run)}"
    if a.run.device_name != b.run.device_name:
        st.warning(
            f"a is of {md(a.run.device_name)}, b of {md(b.run.device_name)}: what differs may be the device."
        )
    table = pd.DataFrame([asdict(r) for r in rows])
    subtitle = f"{changes.plain(words)} · {steps[0]} and {steps[1]} steps"
    fig = cached_chart.once(
        ("changes", a.id, a.stamp, b.id, b.stamp, by, how, words, style.theme()),
        lambda: changes.bars(rows, by, _AS[how], subtitle, style.theme()),
    )
    elements.chart(fig, b.name("changes"), table)
    if len(table):
        shown = sentences.units(table).rename(columns={"state": "b is", "ratio": "b / a"})
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
        "Times are a step of each profile. Profiled times are no latencies: differences up to 2 % count as the same; compare benchmarks for a verdict."
    )


def _unlike(other: Run, run: Run) -> tuple[bool, ...]:
    """What comes first when sorted by it: the same work, on the same device, then the newest."""
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


def _totals(rows: list[profile_diff.Difference], by: str) -> None:
    totals = profile_diff.totals(rows)
    # a module's time holds that of the modules in it
    outermost = [r for r in rows if by != "module" or "." not in r.name]
    before, after = sum(r.a_ns for r in outermost), sum(r.b_ns for r in outermost)
    boxes = st.columns(len(totals) + 1)
    boxes[0].metric(
        "all, b / a",
        numbers.ratio(after / before) if before and after else numbers.NA,
        help=f"{numbers.time(before / 1e6)} → {numbers.time(after / 1e6)} a step",
    )
    for box, (state, t) in zip(boxes[1:], totals.items(), strict=True):
        sign = "+" if t["delta_ns"] > 0 else "−" if t["delta_ns"] < 0 else ""
        box.metric(
            state,
            f"{t['rows']}",
            help=f"{sign}{numbers.time(abs(t['delta_ns']) / 1e6)} a step" if t["rows"] else None,
        )
