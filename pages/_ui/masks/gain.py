"""Measured speed-up of masks over all runs, against the ideal 1 / density of skipping."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from fusescope import ops
from fusescope.charts import captions, numbers
from fusescope.charts.masks import gain
from pages._ui.app import cached_chart, device, run_data, url
from pages._ui.forms import fields
from pages._ui.masks import achieved, facts
from pages._ui.widgets import elements
from pages._ui.widgets.text import device_text

_SHOWN = {
    "impl": "implementation",
    "full_impl": "on the full mask",
    "gain": "speed-up (×)",
    "ideal": "ideal (×)",
    "memory": "memory's limit (×)",
    "share": "of the lower (%)",
    "kv_heads": "KV heads",
    "seq": "sequence",
    "seq_k": "keys",
    "head_dim": "head size",
    "full_run": "run of the full mask",
}
"""Columns of the file whose heading in the table is another."""
_NO_RATE = "the rate of this device is not known"
_FIRST = ("mask", "impl", "ms", "full_impl", "full_ms", "gain", "ideal", "memory", "share")
_LAST = ("dtype", "mode", "older", "run", "full_run")


def draw(state: url.State, look) -> None:
    """The chart, its table, and what was excluded and why; opens on an operator, device and dtype that have
    been measured."""
    runs = run_data.state()
    pairs = {op: rows for op in _with_masks() if len(rows := achieved.pairs(op, runs))}
    if not pairs:
        _nothing(look)
        return
    a, b, c = st.columns(3)
    titles = {op: ops.load(op).TITLE for op in pairs}
    op = fields.pick(state, "op", "operator", pairs, _usual_op(pairs), box=a, format_func=titles.get)
    found = pairs[op]
    devices = list(found.device_name.value_counts().index)
    name = fields.pick(
        state, "on", "measured on", devices, _usual_device(devices, op, look), box=b, format_func=device_text
    )
    dtypes = list(found[found.device_name == name].dtype.value_counts().index)
    dtype = fields.pick(state, "gain_dtype", "dtype", dtypes, box=c)
    with st.container(horizontal=True):
        every = fields.yes(state, "every", "every implementation, not only the fastest")
        only = fields.yes(state, "only", "only the masks above")
    about = (op, name, dtype, every, only, look.key, runs)
    points, missing = _points(*about)
    if points.empty:
        st.caption(f"No results of {titles[op]} on {device_text(name)} to show. {_why(missing)}")
        return
    fig = cached_chart.once(("mask gain", *about), lambda: _chart(points, name, dtype, look.theme))
    shape = [c for c in achieved.SHAPE if c in points and points[c].notna().any()]
    data = points[[*_FIRST, *shape, *_LAST]].sort_values(["mask", "seq", "ms"])
    elements.chart(fig, f"mask-gain-{op}", data)
    unit, factor = numbers.time_unit([*data["ms"], *data["full_ms"]])
    shown = data.assign(share=100 * data["share"], ms=data["ms"] * factor, full_ms=data["full_ms"] * factor)
    shown = shown.rename(columns=_SHOWN | {"ms": f"time ({unit})", "full_ms": f"full mask ({unit})"})
    elements.table(shown, f"mask-gain-{op}-table", data, height=260, why={"memory's limit (×)": _NO_RATE})
    elements.note(
        f"{len(points)} results of {points.run.nunique()} runs. {_why(missing)} Both times are of the same "
        f"shape, dtype, device and timing mode ({captions.mode(points['mode'].mode()[0])}), from the newest "
        "run that measured both. ideal: 1 / density; memory's limit: the time of the full mask over that of "
        "the minimum traffic at the device's rate; of the lower: of the smaller of these two. older: a newer "
        "source of the implementation was measured on other shapes only."
    )


@st.cache_data(max_entries=32, show_spinner=False)
def _points(
    op: str, name: str, dtype: str, every: bool, only: bool, look: tuple, runs: int
) -> tuple[pd.DataFrame, int]:
    """``achieved.with_limits`` of the pairs to show, with ``chosen``: of a mask above the view; and a
    ``label``."""
    found = achieved.pairs(op, runs, every=every)
    found = found[(found.device_name == name) & (found.dtype == dtype)]
    mine = _above(found, look[0])
    points, missing = achieved.with_limits(found[mine] if only else found)
    return points.assign(chosen=mine.reindex(points.index), label=_labels(points)), missing


def _chart(points: pd.DataFrame, name: str, dtype: str, theme: str) -> go.Figure:
    subtitle = f"{device_text(name)} · {dtype} · {gain.summary(points)}"
    return gain.against_density(points, "Speed-up over the fastest on the full mask", subtitle, theme)


def _with_masks() -> list[str]:
    return [op for op in ops.names() if any(p.kind == "mask" for p in ops.load(op).PARAMETERS)]


def _usual_op(pairs: dict) -> str:
    return facts.OP if facts.OP in pairs else next(iter(pairs))


def _usual_device(devices: list[str], op: str, look) -> str:
    """Where the first mask above was measured, as its key numbers say; else this machine's device, else the
    one with most results."""
    quoted = facts.measured(look.texts[0], look.seq_q, look.seq_k) if op == facts.OP else pd.DataFrame()
    here = device.facts(device.current()).get("device_name")
    wanted = quoted.device_name.iloc[0] if len(quoted) else here
    return wanted if wanted in devices else devices[0]


def _above(found: pd.DataFrame, texts: tuple[str, ...]) -> pd.Series:
    """Which rows are of the masks above the view."""
    return pd.Series(
        [
            any(achieved.same(mask, text, int(k)) for text in texts)
            for mask, k in zip(found["mask"], found.seq_k, strict=True)
        ],
        index=found.index,
        dtype=bool,
    )


def _labels(points: pd.DataFrame) -> list[str]:
    return [f"{r.mask}, {achieved.shape(r)}, {r.dtype}" for r in points.itertuples()]


def _why(missing: int) -> str:
    return f"{missing} left out: the mask's file is not on this machine." if missing else ""


def _nothing(look) -> None:
    st.markdown("No operator has been measured here both with a mask and on the full mask yet.")
    st.page_link(
        "pages/kernels.py",
        label="**Measure this mask on the Kernels page →**",
        query_params={"op": facts.OP, "mask": look.texts[0], "seq": str(look.seq_q)},
    )
