"""Runs of fusion schemes: which there are, what they hold, and what they were measured on."""

from __future__ import annotations

import json
from pathlib import Path

import streamlit as st

from fusescope.charts import captions
from fusescope.core.errors import RunError
from fusescope.core.records import Record, Run
from fusescope.search import sessions
from fusescope.search.learning import pairs
from fusescope.search.scheme.setting import FINAL, OP, Setting, of_record, of_spec
from fusescope.store import folder, library
from pages._ui.app import run_data, url, warm
from pages._ui.widgets.text import run_name

_LARGE = 2000  # records
KINDS = ("traverse", "search")


@st.cache_data(ttl=2, show_spinner=False)
def listed() -> list[Run]:
    """Every sweep and search, newest first."""
    found = [r for kind in KINDS for r in library.runs(kind=kind, limit=200)[0]]
    return sorted(found, key=lambda r: r.created or 0, reverse=True)


def line(run_id: str) -> str:
    """A run as one line of a list."""
    run = run_data.read(run_id)
    return f"{run_name(run)} · {run.device_name} · {captions.when(run)}"


def choose(
    state: url.State,
    key: str,
    label: str,
    kinds: tuple[str, ...] = KINDS,
    setting: Setting | None = None,
    largest: bool = False,
) -> Run | None:
    """One of the runs of these kinds: the URL's, else the sweep on show, else the newest (or the largest) of
    this setting, else the newest recorded one, else the newest; None without any."""
    offered = [r.id for r in listed() if r.kind in kinds]
    slot = f"{state.page}/{key}"
    if state.opened and state.query.get(key):
        if state.query[key] in offered:
            st.session_state[slot] = state.query[key]
        else:
            state.ignored(key, f"no {' or '.join(kinds)} run here has this id")
    if not offered:
        return None
    if st.session_state.get(slot) not in offered:
        last = st.session_state.get(f"{state.page}/traverse")  # continue with the sweep on show
        mine = [r.id for r in listed() if r.kind in kinds and setting is not None and same(r, setting)]
        if largest:
            mine.sort(key=lambda i: -len(layers(i)[0]))
        near = [last] if last in offered else mine
        st.session_state[slot] = (near or [i for i in offered if run_data.read(i).recorded] or offered)[0]
    chosen = st.selectbox(label, offered, key=slot, format_func=line)
    state.keep(key, chosen)
    return run_data.read(chosen)


def show(state: url.State, key: str, run_id: str) -> None:
    """Make this run the chosen one."""
    st.session_state[f"{state.page}/{key}"] = run_id
    listed.clear()


def same(run: Run, setting: Setting) -> bool:
    """Whether the run is of exactly this setting, on this machine."""
    try:
        return not run.recorded and of_spec(run.spec) == setting
    except (ValueError, TypeError):
        return False


def layers(run_id: str) -> tuple[list[Record], list[Record]]:
    """(records of schemes, of baselines) of a run, in the order of measuring."""
    path = library.find(run_id)
    return _records(str(path), run_data.stamp(path, "results.jsonl"))[:2]


@st.cache_resource(max_entries=8, show_spinner=False)
def _records(path: str, stamp: tuple[int, int]) -> tuple[list[Record], list[Record], list[Record]]:
    """(of schemes, of baselines, of baselines timed with the best schemes). Not copied for each drawing: a
    sweep may hold 16,000."""
    records = sessions.records(Path(path).name)
    layers, final = (
        [r for r in records if r.op == OP],
        [r for r in records if r.op == FINAL and not _is_code(r.impl)],
    )
    found = [r for r in layers if _is_code(r.impl)], [r for r in layers if not _is_code(r.impl)], final
    if len(records) > _LARGE:
        warm.settle()
    return found


def baselines(run_id: str) -> dict[str, float]:
    """ms by baseline: as measured with the full budget with the best schemes where available, else at the
    start."""
    path = library.find(run_id)
    _, first, final = _records(str(path), run_data.stamp(path, "results.jsonl"))
    return {r.impl: r.ms for r in (*first, *final) if r.status == "ok"}


def fastest(run_id: str) -> dict[str, tuple[float, Record]]:
    """{code: (ms, record)} of the correct schemes, fastest first."""
    path = library.find(run_id)
    return _fastest(str(path), run_data.stamp(path, "results.jsonl"))


@st.cache_resource(max_entries=8, show_spinner=False)
def _fastest(path: str, stamp: tuple[int, int]) -> dict[str, tuple[float, Record]]:
    found = {r.impl: (r.ms, r) for r in _records(path, stamp)[0] if r.status == "ok"}
    return dict(sorted(found.items(), key=lambda item: item[1][0]))


def known_pairs(run_id: str) -> dict[str, float]:
    """{code: ms} of a run's correct schemes: what a search is replayed on."""
    path = library.find(run_id)
    return _pairs(str(path), run_data.stamp(path, "results.jsonl"))


@st.cache_resource(max_entries=8, show_spinner=False)
def _pairs(path: str, stamp: tuple[int, int]) -> dict[str, float]:
    return pairs.of_records(_records(path, stamp)[0])


def comparable_pairs(run_id: str) -> dict[str, float]:
    """{code: ms} of the schemes that one box measured (of several the one with the most), with the unfused
    layer: what a cost model learns from."""
    path = library.find(run_id)
    return _comparable(str(path), run_data.stamp(path, "results.jsonl"))


@st.cache_resource(max_entries=8, show_spinner=False)
def _comparable(path: str, stamp: tuple[int, int]) -> dict[str, float]:
    about = folder.read(Path(path)).environment.get("sittings", ())
    boxes = sessions.machines(about, _records(path, stamp)[0])
    return pairs.beside_unfused(boxes[0]) if boxes else {}


def records_of(setting: Setting, code: str) -> list[tuple[Run, Record]]:
    """Records of one scheme in one setting, newest run first."""
    found = []
    for run in listed():
        if same(run, setting):
            found += [(run, r) for r in layers(run.id)[0] if r.impl == code]
    return found


def caption(run: Run) -> str:
    """Setting, device and date: what stands under each chart's title."""
    records = layers(run.id)[0]
    try:
        setting = of_record(records[0]) if records else of_spec(run.spec)
        what = layer_text(setting)
    except (ValueError, TypeError):
        what = run_name(run)
    return f"{captions.context(run)}<br>{what}"


def layer_text(setting: Setting) -> str:
    """The layer as a short text."""
    return f"batch {setting.batch}, seq {setting.seq}, {setting.heads} × {setting.head_dim}, {setting.mask}"


def artifact(run_id: str, name_: str) -> dict | None:
    """A JSON file of the run, None where it does not exist yet; RunError where it is damaged."""
    file = library.find(run_id) / "artifacts" / name_
    if not file.is_file():
        return None
    try:
        return json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise RunError(f"{file} cannot be read: {error}") from None


def _is_code(impl: str) -> bool:
    return len(impl) == 16 and set(impl) <= {"0", "1"}
