"""Two profiles of the same work joined: a trace for the times, a Nsight Compute report for the counters."""

from __future__ import annotations

import streamlit as st

from fusescope.analysis.kernel_names import match
from fusescope.store import profile
from pages._ui.app import run_data, url
from pages._ui.forms import fields
from pages._ui.profiler import data, sentences
from pages._ui.profiler.data import Profile
from pages._ui.widgets.text import run_name

NONE = "none"
_MOST = 20_000  # launches of a trace that are matched
_COLUMNS = ["name", "dur_ns", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"]


def choose(state: url.State, found: Profile) -> tuple[Profile | None, Profile | None]:
    """(trace, report of ncu): the profile itself and the partner that is chosen; None for what there is
    not."""
    own_ncu, own_trace = found.has("ncu_kernels"), found.has("kernels")
    if own_ncu and own_trace:
        return found, found
    if not own_ncu and not own_trace:
        return None, None
    wanted = "kernels" if own_ncu else "ncu_kernels"
    options = [i for i in data.offered() if i != found.id and wanted in data.load(i).tables]
    options.sort(key=lambda i: _distance(run_data.read(i).spec, found.run.spec))
    usual = (
        options[0] if options and _distance(run_data.read(options[0]).spec, found.run.spec) < _OTHER else NONE
    )
    key = state.seed("with", usual, url.one_of([NONE, *options]), found.id)
    if st.session_state[key] not in (NONE, *options):
        st.session_state[key] = usual
    names = {i: NONE if i == NONE else f"{run_name(run_data.read(i))} ({i})" for i in (NONE, *options)}
    label = "joined with the trace" if own_ncu else "joined with the Nsight Compute report"
    chosen = st.selectbox(
        label,
        [NONE, *options],
        key=key,
        format_func=names.get,
        filter_mode=fields.IN_LINES,
        help="Joined by kernel name, grid, block and order",
    )
    state.keep("with", chosen, usual)
    other = None if chosen == NONE else data.load(chosen)
    return (other, found) if own_ncu else (found, other)


def counters(found: Profile) -> list[dict]:
    """Launches of Nsight Compute for a profile: its own, else those of the newest report on exactly the same
    work."""
    if found.has("ncu_kernels"):
        return sentences.rows(found, "ncu_kernels")
    for i in data.offered():
        other = data.load(i)
        if "ncu_kernels" in other.tables and _distance(other.run.spec, found.run.spec) == 0:
            return sentences.rows(other, "ncu_kernels")
    return []


def other_work(a: Profile, b: Profile) -> bool:
    """Whether two runs are known to have done different work, so that their times and bytes do not
    combine."""
    return all(p.run.spec.get("op") for p in (a, b)) and _distance(a.run.spec, b.run.spec) > 0


_OTHER = 2


def _distance(a, b) -> int:
    """0: the same work; 1: the same kernels, of a model with more or fewer layers; _OTHER."""
    if not a.get("op") or any(a.get(k) != b.get(k) for k in ("op", "impl", "dtype")):
        return _OTHER
    if a.get("case") == b.get("case"):
        return 0
    without = [{k: v for k, v in (spec.get("case") or {}).items() if k != "layers"} for spec in (a, b)]
    return 1 if without[0] == without[1] else _OTHER


def partners(trace: Profile | None, report: Profile | None) -> list[int | None]:
    """For each launch of the report its row in the trace."""
    if trace is None or report is None:
        return [None] * (report.rows("ncu_kernels") if report else 0)
    return _partners(str(trace.path), trace.stamp, str(report.path), report.stamp)


@st.cache_data(max_entries=16, show_spinner=False)
def _partners(trace: str, trace_stamp: str, report: str, report_stamp: str) -> list[int | None]:
    return match(data.rows(report, "ncu_kernels", report_stamp), launches(trace, trace_stamp))


@st.cache_data(max_entries=8, show_spinner=False)
def launches(trace: str, stamp: str) -> list[dict]:
    """The first launches of a trace, in the order of the file."""
    return profile.arrow(data.Path(trace), "kernels", _COLUMNS).slice(0, _MOST).to_pylist()


def measured(trace: Profile | None, report: Profile | None) -> dict[str, float]:
    """Kernel name of the trace → occupancy that ncu measured (of the launch that took longest there)."""
    if trace is None or report is None:
        return {}
    rows, there = sentences.rows(report, "ncu_kernels"), launches(str(trace.path), trace.stamp)
    best: dict[str, tuple[float, float]] = {}
    for row, at in zip(rows, partners(trace, report), strict=True):
        value = row.get("measured_occupancy")
        if at is None or value is None or value != value:
            continue
        weight = float(row.get("duration_ns") or 0)
        name = there[at]["name"]
        if name not in best or weight > best[name][0]:
            best[name] = (weight, float(value))
    return {name: value for name, (_, value) in best.items()}
