"""Runs of fusion schemes: which there are, what they hold, and what they were measured on."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import streamlit as st

from fusescope import models
from fusescope.charts import captions
from fusescope.core import paths
from fusescope.core.records import Record, Run
from fusescope.jobs import submit
from fusescope.search import encoding, sessions
from fusescope.search.learning import pairs
from fusescope.search.scheme.setting import FINAL, OP, PARAMETERS, Setting, of_record, of_spec
from fusescope.store import folder, library
from pages._ui.app import run_data, url, warm
from pages._ui.widgets.text import run_name

_LARGE = 2000  # records
_FAMILY = "bert-"  # whose layer the 15 operators are
KINDS = ("traverse", "search")
FEWEST = 20
"""Schemes that a sweep of one's own needs in order to be shown before a recorded one."""


@dataclass(frozen=True)
class Layer:
    """What the page is about: a layer on this machine's device, or as recorded on another one."""

    setting: Setting
    device_name: str
    here: bool


def listed() -> tuple[Run, ...]:
    """Every sweep and search, newest first."""
    return _listed(str(paths.profiles()))


@st.cache_resource(ttl=2, show_spinner=False)  # runs are not changed: copies of all take longer than reading
def _listed(home: str) -> tuple[Run, ...]:
    found = [r for kind in KINDS for r in library.runs(kind=kind, limit=200)[0]]
    return tuple(sorted(found, key=lambda r: r.created or 0, reverse=True))


def line(run: Run) -> str:
    """A run as one line of a list."""
    return f"{run_name(run)} · {run.device_name} · {captions.when(run)}"


def choose(
    state: url.State,
    key: str,
    label: str,
    kinds: tuple[str, ...] = KINDS,
    layer: Layer | None = None,
) -> Run | None:
    """One of the runs of these kinds: the URL's, else the sweep on show, else the largest of this layer, else
    the largest recorded one, else the newest; None without any. A run of few schemes hides no larger one."""
    offered = {r.id: r for r in listed() if r.kind in kinds}
    slot = f"{state.page}/{key}"
    if state.opened and state.query.get(key):
        if state.query[key] in offered:
            st.session_state[slot] = state.query[key]
        else:
            state.ignored(key, f"no {' or '.join(kinds)} run here has this id")
    if not offered:
        return None
    started = st.session_state.pop(f"{slot}/next", None)
    if started in offered:
        st.session_state[slot] = started
    if st.session_state.get(slot) not in offered:
        last = st.session_state.get(f"{state.page}/traverse")  # continue with the sweep on show
        mine = [r for r in offered.values() if layer is not None and same(r, layer)]
        theirs = [r for r in offered.values() if r.recorded]
        usual = largest(mine) or largest(theirs) or (mine or list(offered.values()))[0]
        st.session_state[slot] = last if last in offered else usual.id
    chosen = st.selectbox(label, list(offered), key=slot, format_func=lambda i: line(offered[i]))
    state.keep(key, chosen)
    return run_data.read(chosen)


def start(page: str, kind: str, spec: dict) -> None:
    """Submit a job and draw the page again with its run chosen."""
    st.session_state[f"{page}/{kind}/next"] = submit.submit(kind, spec)
    _listed.clear()
    st.rerun()


def same(run: Run, layer: Layer) -> bool:
    """Whether the run is of exactly this layer, on that device: this machine's, or the recorded one's."""
    if run.recorded is layer.here or (run.recorded and run.device_name != layer.device_name):
        return False
    return setting_of(run) == layer.setting


def setting_of(run: Run) -> Setting | None:
    """What a run measured; None where its specification is no layer's."""
    try:
        return _setting(json.dumps({p.name: run.spec[p.name] for p in PARAMETERS if p.name in run.spec}))
    except (ValueError, TypeError):
        return None


@lru_cache(maxsize=1024)
def _setting(spec: str) -> Setting:
    """Kept: each drawing asks several times for that of every run."""
    return of_spec(json.loads(spec))


def listed_of(kinds: tuple[str, ...]) -> list[Run]:
    """The runs of these kinds, newest first."""
    return [r for r in listed() if r.kind in kinds]


def largest(found: list[Run]) -> Run | None:
    """The run with the most schemes, of several the newest; None where none has FEWEST."""
    enough = [r for r in found if r.progress.done >= FEWEST]
    return max(enough, key=lambda r: (r.progress.done, r.created or 0)) if enough else None


def sweep_of(layer: Layer) -> Run | None:
    """The sweep, else the search, that has most schemes of this layer; None where none has FEWEST."""
    mine = [r for r in listed() if same(r, layer)]
    return largest([r for r in mine if r.kind == "traverse"]) or largest(mine)


def near(layer: Layer) -> list[Run]:
    """The sweep with most schemes of each other layer measured there, the nearest layer first: by doublings
    of its sizes, one with another mask or dtype after all that share them."""
    there = [r for r in listed_of(("traverse",)) if r.recorded is not layer.here and setting_of(r)]
    there = [r for r in there if layer.here or r.device_name == layer.device_name]
    settings = {setting_of(r) for r in there} - {layer.setting}
    found = [largest([r for r in there if setting_of(r) == s]) for s in settings]
    return sorted((r for r in found if r), key=lambda r: (_apart(setting_of(r), layer.setting), r.id))


def _apart(one: Setting, other: Setting) -> float:
    sizes = ("batch", "seq", "heads", "head_dim", "ffn")
    doublings = sum(abs(math.log2(getattr(one, name) / getattr(other, name))) for name in sizes)
    words = sum(getattr(one, name) != getattr(other, name) for name in ("mask", "dtype", "compiler"))
    return doublings + 40 * words


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
        [r for r in records if r.op == FINAL and not encoding.is_code(r.impl)],
    )
    found = (
        [r for r in layers if encoding.is_code(r.impl)],
        [r for r in layers if not encoding.is_code(r.impl)],
        final,
    )
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


def records_of(layer: Layer, code: str) -> list[tuple[Run, Record]]:
    """Records of one scheme of this layer, newest run first."""
    found = []
    for run in listed():
        if same(run, layer):
            found += [(run, r) for r in layers(run.id)[0] if r.impl == code]
    return found


def caption(run: Run) -> str:
    """Setting, device and date: what stands under each chart's title."""
    records = layers(run.id)[0]
    try:
        setting = of_record(records[0]) if records else of_spec(run.spec)
        what = f"{model_text(setting)}: {layer_text(setting)}"
    except (ValueError, TypeError):
        what = run_name(run)
    return f"{captions.context(run)}<br>{what}"


def model_text(setting: Setting) -> str:
    """Whose layer it is: "BERT base"; "BERT, of other sizes" where no model of that family has these."""
    own = (setting.heads, setting.head_dim, setting.ffn)
    for name in models.names():
        if name.startswith(_FAMILY):
            config = models.config(name)
            if (config.heads, config.head_dim, config.ffn) == own:
                return models.title(name)
    return "BERT, of other sizes"


def layer_text(setting: Setting) -> str:
    """The layer's sizes and mask as a short text."""
    return f"batch {setting.batch}, seq {setting.seq:,}, {setting.heads} × {setting.head_dim}, {setting.mask}"
