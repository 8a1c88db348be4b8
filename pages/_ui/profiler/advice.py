"""What to do: recommendations under the verdict, each with its figures, a bound on its gain and a link."""

from __future__ import annotations

import streamlit as st

from fusescope.analysis.profile import metrics as profile_metrics
from fusescope.analysis.profile.advice import Recommendation, recommend
from fusescope.charts import numbers
from fusescope.core.errors import RunError
from fusescope.store import profile
from pages._ui.app import run_data
from pages._ui.profiler import data, sentences
from pages._ui.profiler.data import Profile
from pages._ui.widgets.text import md, run_name

_SHOWN = 5


def draw(found: Profile) -> None:
    """The recommendations; nothing where there are none."""
    advice = _advice(str(found.path), found.stamp)
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
        link.button(
            one.view, key=f"profiler/advice/{number}", type="tertiary", on_click=_open, args=(one.view,)
        )


def _compare(found: Profile, other: Profile, number: int) -> None:
    """Another profile of the same work that takes less time per step."""
    mine, theirs = step_ns(found), step_ns(other)
    words, link = st.columns([7, 1], gap="small", vertical_alignment="center")
    words.markdown(
        f"**Run it as {md(str(other.run.spec.get('impl')))}** · {numbers.ratio(mine / theirs)} as fast  \n"
        f"The same work takes {numbers.time(theirs / 1e6)} a step there, {numbers.time(mine / 1e6)} here "
        f"({md(run_name(other.run))})."
    )
    link.button(
        "Compare",
        key=f"profiler/advice/compare/{number}",
        type="tertiary",
        on_click=_against,
        args=(found, other),
    )


def _open(view: str) -> None:
    st.session_state["profiler/view"] = view


def _against(found: Profile, other: Profile) -> None:
    data.opened(other.id)
    _open("Compare")
    st.session_state[f"profiler/{other.id}/against"] = found.id


@st.cache_data(max_entries=64, show_spinner=False)
def _advice(path: str, stamp: str) -> list[Recommendation]:
    run = data.Path(path)
    names = profile.names(run)
    kernels, rules, ncu, steps = (
        profile.rows(run, name) if name in names else []
        for name in ("kernel_summary", "ncu_rules", "ncu_kernels", "steps")
    )
    parts = data.device_time(path, stamp)
    copies, sequence = profile.copies_by_name(run), profile.kernel_sequence(run)
    summary = profile.summary(run) or {}
    return recommend(summary, kernels, copies, sequence, rules, ncu, max(1, len(steps)), parts)


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
            same = all(run.spec.get(k) == spec.get(k) for k in ("op", "case", "dtype"))
            if run_id == found.id or not same or run.device_name != found.run.device_name:
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
