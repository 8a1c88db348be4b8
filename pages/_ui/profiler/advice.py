"""What to do: recommendations under the verdict, each with its figures, a bound on its gain and a link."""

from __future__ import annotations

import streamlit as st

from fusescope.analysis.compare import profiled
from fusescope.analysis.profile import launch_path
from fusescope.analysis.profile import metrics as profile_metrics
from fusescope.analysis.profile.advice import recommend
from fusescope.analysis.profile.recommendation import Recommendation
from fusescope.analysis.profile.single import single_gaps
from fusescope.charts import numbers
from fusescope.core.errors import RunError
from fusescope.store import profile
from pages._ui.app import run_data, url
from pages._ui.profiler import benchmarks, data, sentences
from pages._ui.profiler.data import Profile
from pages._ui.widgets.text import md, run_name

_SHOWN = 5


def draw(found: Profile) -> None:
    """The recommendations; nothing where there are none."""
    measured = benchmarks.of(found.run, str(found.run.spec.get("impl")))
    ms = next(iter(measured.ms.values())) if measured and not measured.differs else None
    advice = _advice(str(found.path), found.stamp, ms)
    others = _faster(found)
    if not advice and not others:
        return
    st.markdown("**What to do**")
    for number, other in enumerate(others):
        _compare(found, other, number)
    for number, one in enumerate(advice[:_SHOWN]):
        _one(one, number)
    if len(advice) > _SHOWN:
        with st.expander(f"{len(advice) - _SHOWN} more"):
            for number, one in enumerate(advice[_SHOWN:], _SHOWN):
                _one(one, number)


def _one(one: Recommendation, number: int) -> None:
    gain = f" · at most {numbers.ratio(one.gain)} as fast" if one.gain and one.gain >= 1.01 else ""
    words, link = st.columns([7, 1], gap="small", vertical_alignment="center")
    words.markdown(f"**{md(one.title)}**{gain}  \n{md(one.says)}")
    if one.view and one.view != "Overview":
        link.button(one.view, key=f"profiler/advice/{number}", on_click=_open, args=(one.view,))


def _compare(found: Profile, other: Profile, number: int) -> None:
    """Another profile of the same work that takes less time per step: by a benchmark of both where there is
    one, since the profiler slows down the host."""
    names = [str(p.run.spec.get("impl")) for p in (found, other)]
    mine, theirs = step_ns(found), step_ns(other)
    measured = benchmarks.of(found.run, *names)
    profiled = f"{numbers.time(theirs / 1e6)} a step there, {numbers.time(mine / 1e6)} here"
    if measured and not measured.differs:
        before, after = (measured.ms[n] for n in names)
        if before < after * (1 + profile_metrics.TOLERANCE):
            return  # no gain but for the profiler's cost
        gain = f"{numbers.ratio(before / after)} as fast"
        says = (
            f"A call takes {numbers.time(after)} there, {numbers.time(before)} here, by "
            f"[a benchmark]({url.link('runs', run=measured.run)}); under the profiler {profiled}."
        )
    elif waits_for_host(found):
        gain = f"at most {numbers.ratio(mine / theirs)} as fast"
        says = (
            f"Under the profiler the same work takes {profiled}. It adds time to each launch, for which the "
            "device waits here: the true gain is smaller. No benchmark on this device has both at this shape"
            + (f"; the nearest, {_nearest(measured, names)}." if measured else ".")
        )
    else:
        gain = f"{numbers.ratio(mine / theirs)} as fast"
        says = f"Under the profiler the same work takes {profiled} ({md(run_name(other.run))})."
    words, link = st.columns([7, 1], gap="small", vertical_alignment="center")
    words.markdown(f"**Run it as {md(names[1])}** · {gain}  \n{says}")
    link.button(
        "Compare",
        key=f"profiler/advice/compare/{number}",
        on_click=_against,
        args=(found, other),
    )


def _nearest(measured: benchmarks.Measured, names: list[str]) -> str:
    """ "seq 512: 3.56× as fast (5.26 ms → 1.48 ms)", a link."""
    before, after = (measured.ms[n] for n in names)
    times = f"{numbers.time(before)} → {numbers.time(after)}"
    address = url.link("runs", run=measured.run)
    return f"[{md(measured.where())}]({address}): {numbers.ratio(before / after)} as fast ({times})"


def waits_for_host(found: Profile) -> bool:
    """Whether the device waits for the host so long that the profiler's own cost shows in its steps."""
    summary = found.summary or {}
    single = single_gaps(summary)
    span = sum(d["last_ns"] - d["first_ns"] for d in summary.get("devices") or ())
    span -= sum(gap["dur_ns"] for gap in single)
    return launch_path.host_share(summary, single, max(1, span)) >= launch_path.HOST_BOUND


def _open(view: str) -> None:
    st.session_state["profiler/view"] = view


def _against(found: Profile, other: Profile) -> None:
    data.opened(other.id)
    _open("Compare")
    st.session_state[f"profiler/{other.id}/against"] = found.id


@st.cache_data(max_entries=64, show_spinner=False)
def _advice(path: str, stamp: str, measured_ms: float | None) -> list[Recommendation]:
    run = data.Path(path)
    names = profile.names(run)
    kernels, rules, ncu, steps = (
        profile.rows(run, name) if name in names else []
        for name in ("kernel_summary", "ncu_rules", "ncu_kernels", "steps")
    )
    parts = data.device_time(path, stamp)
    copies, sequence = profile.copies_by_name(run), profile.kernel_sequence(run)
    summary = profile.summary(run) or {}
    return recommend(
        summary,
        kernels,
        copies,
        sequence,
        rules,
        ncu,
        max(1, len(steps)),
        parts,
        measured_ms and 1e6 * measured_ms,
    )


def step_ns(found: Profile) -> float | None:
    """Time of a step on the device."""
    return profile_metrics.step_ns(found.summary or {}, found.rows("steps"))


def _faster(found: Profile) -> list[Profile]:
    """Profiles of the same work on the same GPU that take clearly less time per step: the fastest, and the
    same mode in a CUDA graph."""
    mine, spec = step_ns(found), found.run.spec
    if not mine or not spec.get("op"):
        return []
    others: dict[str, tuple[float, Profile]] = {}
    for run_id in data.offered():
        try:
            run = run_data.read(run_id)
            answer = profiled.judge(found.run, run)
            if run_id == found.id or not (answer.work and answer.comparable):
                continue
            other = data.load(run_id)
            theirs = step_ns(other)
        except RunError:
            continue
        impl = str(run.spec.get("impl"))
        if theirs and theirs < mine * (1 - profile_metrics.TOLERANCE) and impl not in others:
            others[impl] = theirs, other
    best = min(others.values(), key=lambda o: o[0], default=None)
    graph = others.get(f"{spec.get('impl')}-graph")
    return list({o[1].id: o[1] for o in (graph, best) if o}.values())


def metrics(found: Profile) -> list[profile_metrics.Metric]:
    """The figures of the whole profile."""
    steps = sentences.rows(found, "steps") if found.has("steps") else []
    ncu = sentences.rows(found, "ncu_kernels") if found.has("ncu_kernels") else []
    return profile_metrics.metrics(found.summary or {}, steps, ncu)
