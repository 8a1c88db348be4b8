"""Memory over time: allocator, NVML and prediction on one axis; the peaks; the segments of a snapshot."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from fusescope.charts import numbers
from fusescope.charts.profile import memory_time
from fusescope.store import files, timeline
from pages._ui.app import cached_chart, url
from pages._ui.profiler import cost, sentences
from pages._ui.profiler.data import Profile
from pages._ui.widgets import elements, style, told

_TELEMETRY = {
    "allocated_bytes": "allocated (sampled)",
    "reserved_bytes": "reserved (sampled)",
    "memory_used_bytes": "NVML, whole device",
    "rss_bytes": "process (CPU memory)",
}
_SAME_CLOCK_S = 3600  # a trace whose times are further from the telemetry's than this uses another clock


def overview(summary: dict) -> None:
    """What a memory snapshot has for the overview."""
    memory = summary.get("memory") or {}
    elements.metrics(
        (label, numbers.size(memory.get(key)))
        for label, key in (
            ("reserved at the end", "reserved_bytes"),
            ("allocated at the end", "allocated_bytes"),
            ("peak of the history", "history_peak_bytes"),
        )
    )
    st.caption("A memory snapshot; its timeline is under Memory.")


def draw(state: url.State, found: Profile) -> None:
    """The chart, peaks, and tables."""
    series = _series(str(found.path), found.tables, found.stamp)
    work = cost.work(found.run)
    predicted = work.memory if work else {}
    if not series and not predicted:
        sentences.lacks("memory figures", "Profile with “memory” on, or import a memory snapshot.")
        return
    usual = [n for n in series if not n.startswith("process") and "CPU" not in n] or list(series)
    shown = {}
    if series:
        key = state.seed(
            "series", usual, lambda text: [n for n in text.split("|") if n in series] or usual, found.id
        )
        told.tell(key, [n for n in st.session_state[key] or () if n in series])
        chosen = st.multiselect("series", list(series), key=key, label_visibility="collapsed")
        state.keep("series", "|".join(chosen), "|".join(usual))
        shown = {n: series[n] for n in chosen}
    if shown:
        _chart(found, series, shown, predicted)
    else:
        elements.note("No memory sample in this profile: what its operands need is predicted below.")
    _peaks(found, series, predicted)
    if found.has("segments"):
        st.markdown("**Segments at the end of the snapshot**")
        elements.table(
            sentences.units(sentences.frame(found, "segments")), found.name("segments"), height=300
        )


def _chart(found: Profile, series: dict, shown: dict, predicted: dict) -> None:
    fig = cached_chart.once(
        ("memory", found.id, found.stamp, *shown, style.theme()), lambda: _lines(found, shown, predicted)
    )
    data = pd.DataFrame(
        [
            {"series": n, "ts_ns": t, "bytes": v}
            for n, (ts, values) in series.items()
            for t, v in zip(ts, values, strict=True)
        ]
    )
    elements.chart(fig, found.name("memory"), data)


def _lines(found: Profile, shown: dict, predicted: dict) -> go.Figure:
    starts = [s[0][0] for s in shown.values() if s[0]]
    zero = min(starts, default=0)
    seconds = {n: ([(t - zero) / 1e9 for t in ts], values) for n, (ts, values) in shown.items()}
    return memory_time.lines(seconds, predicted, sentences.subtitle(found), style.theme())


def _peaks(found: Profile, series: dict, predicted: dict) -> None:
    file = found.path / "artifacts" / "memory.json"
    peaks = files.read_json(file) if file.is_file() else {}
    lines = [{"what": f"largest {n}", "bytes": max(v)} for n, (_, v) in series.items() if v]
    lines += [
        {"what": k.removesuffix("_bytes").replace("_", " "), "bytes": v}
        for k, v in peaks.items()
        if k.endswith("_peak_bytes") and v
    ]
    lines += [{"what": f"predicted {k}", "bytes": v} for k, v in predicted.items()]
    if lines:
        data = pd.DataFrame(lines)
        elements.table(
            data.assign(size=[numbers.size(b) for b in data["bytes"]])[["what", "size"]],
            found.name("memory-peaks"),
            data,
        )
    if predicted:
        elements.note(
            "Predicted from sizes alone: operands, or weights, activations of one layer and the KV "
            "cache. Allocators round up."
        )
    if peaks.get("note"):
        elements.note(f"{peaks['note'][:1].upper()}{peaks['note'][1:]}.")


@st.cache_data(max_entries=16, show_spinner=False)
def _series(path: str, tables: tuple[str, ...], stamp: str) -> dict[str, tuple[list[int], list[int]]]:
    """Name → (ns, bytes), all on one clock."""
    home, found = Path(path), {}
    if "memory" in tables:
        there = timeline.distinct(home, "memory", "device_type", "device_id")
        for kind, number in there:
            where = (
                "CPU" if kind == 0 else f"cuda:{number}" if number is not None and number >= 0 else "device"
            )
            only = {k: v for k, v in (("device_type", kind), ("device_id", number)) if v is not None}
            for column in ("allocated", "reserved"):
                ts, values = timeline.series(home, "memory", column, only)
                if values and max(values) > 0:
                    found[f"{column}, {where}"] = (ts, values)
    if "telemetry" in tables:
        known = timeline.profile.columns(home, "telemetry")
        sampled = {w: timeline.series(home, "telemetry", c) for c, w in _TELEMETRY.items() if c in known}
        sampled = {w: s for w, s in sampled.items() if s[1] and max(s[1]) > 0}
        first = min((s[0][0] for s in found.values()), default=None)
        if first is None or all(abs(s[0][0] - first) < _SAME_CLOCK_S * 1e9 for s in sampled.values()):
            found |= sampled
    return found
