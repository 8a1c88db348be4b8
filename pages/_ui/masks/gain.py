"""Measured speed-up of masks over all runs, against the ideal 1 / density of skipping."""

from __future__ import annotations

import json

import pandas as pd
import streamlit as st

from fusescope import ops
from fusescope.charts.masks import gain
from fusescope.store import library
from pages._ui.app import url
from pages._ui.forms import fields, mask_files
from pages._ui.masks import stats
from pages._ui.widgets import elements

_AGAINST = {"full": "the same kernel on the full mask", "baseline": "the run's baseline with the same mask"}
_MOST = 3000  # records drawn; the newest count


def draw(state: url.State, look) -> None:
    """The chart, its table, and what was excluded and why."""
    with_masks = [op for op in ops.names() if any(p.kind == "mask" for p in ops.load(op).PARAMETERS)]
    a, b, c = st.columns(3)
    title = {op: ops.load(op).TITLE for op in with_masks}
    op = fields.pick(state, "op", "operator", with_masks, box=a, format_func=title.get)
    against = fields.pick(state, "against", "relative to", _AGAINST, box=b, format_func=_AGAINST.get)
    table = records(op)
    if table.empty:
        _nothing(op, look)
        return
    devices = list(dict.fromkeys(table.device_name[::-1]))
    device = fields.pick(state, "on", "measured on", devices, box=c)
    only = fields.yes(state, "only", "only the masks above")
    table = table[table.device_name == device]
    points, missing = gains(table, against)
    if only:
        points = points[points["mask"].isin(look.texts)]
    if points.empty:
        st.caption(f"No results of {ops.load(op).TITLE} on {device} to show. " + _why(missing, against))
        return
    what = "Speed-up over the full mask" if against == "full" else "Speed-up over the run's baseline"
    fig = gain.against_density(
        points, f"{what}, by density", f"{device} · {gain.summary(points)}", look.theme
    )
    columns = [
        "mask",
        "impl",
        "seq",
        "seq_k",
        "batch",
        "heads",
        "head_dim",
        "dtype",
        "mode",
        "ms",
        "density",
        "ideal",
        "gain",
        "run",
    ]
    data = points.assign(ideal=1 / points.density)[columns]
    elements.chart(fig, f"mask-gain-{op}-{against}", data)
    elements.table(data.sort_values("density"), f"mask-gain-{op}-{against}-table", height=260)
    elements.note(
        f"{len(points)} results. {_why(missing, against)} Times are medians of the kernel (graph replay) "
        "where measured, "
        "else of the eager call."
    )


@st.cache_data(ttl=20, show_spinner=False)
def records(op: str) -> pd.DataFrame:
    """Correct records of the operator, newest last, with the case's keys as columns, the mode that counts and
    its time."""
    table = library.records(op=op)
    table = table[table.status == "ok"].tail(_MOST)
    if table.empty:
        return pd.DataFrame()
    cases = pd.DataFrame([json.loads(c) for c in table["case"]], index=table.index)
    best = table.apply(_time, axis=1, result_type="expand")
    table = (
        table[["run", "created", "device_name", "impl", "dtype", "speedup"]]
        .join(cases)
        .join(best.set_axis(["mode", "ms"], axis=1))
    )
    return table[table.ms.notna() & table["mask"].notna()]


def gains(table: pd.DataFrame, against: str) -> tuple[pd.DataFrame, int]:
    """(records with gain, density and label; how many had nothing to compare with). Full masks
    are excluded."""
    same = [
        c for c in ("batch", "heads", "kv_heads", "seq", "seq_k", "head_dim", "bias", "format") if c in table
    ]
    sparse = table[table["mask"] != "full"].copy()
    if against == "full":
        keys = ["device_name", "impl", "dtype", "mode", *same]
        full = table[table["mask"] == "full"].drop_duplicates(keys, keep="last").set_index(keys).ms
        found = [full.get(tuple(row)) for row in sparse[keys].itertuples(index=False)]
        sparse["gain"] = pd.Series(found, index=sparse.index, dtype=float) / sparse.ms
    else:
        sparse["gain"] = sparse.speedup.astype(float)
    missing = int(sparse.gain.isna().sum())
    sparse = sparse[sparse.gain.notna()]
    sparse["density"] = [_density(m, q, k) for m, q, k in zip(sparse["mask"], sparse.seq, sparse.seq_k)]
    missing += int(sparse.density.isna().sum())
    sparse = sparse[sparse.density.notna() & (sparse.density > 0)]
    sparse["label"] = [
        f"{r.mask}, batch {r.batch}, {r.heads} heads, {r.seq} × {r.seq_k}, {r.dtype}"
        for r in sparse.itertuples()
    ]
    return sparse, missing


def _density(mask: str, seq_q: int, seq_k: int) -> float | None:
    """None for a mask that this machine does not have (a file)."""
    try:
        stats.check(int(seq_q), int(seq_k))
        return stats.density(mask, int(seq_q), int(seq_k), mask_files.stamp(mask))
    except (ValueError, OSError):
        return None


def _time(row) -> tuple[str | None, float | None]:
    for mode in ("graph", "eager", "graph_cold", "eager_cold"):
        if pd.notna(row[f"{mode}_ms"]):
            return mode, float(row[f"{mode}_ms"])
    return None, None


def _why(missing: int, against: str) -> str:
    if not missing:
        return ""
    lacks = (
        "the same case on the full mask was not measured"
        if against == "full"
        else "they are baselines, or have none"
    )
    return f"{missing} excluded: {lacks}, or the mask's file is not on this machine."


def _nothing(op: str, look) -> None:
    st.markdown(f"**{ops.load(op).TITLE}** has not been measured with a mask here yet.")
    st.page_link(
        "pages/kernels.py",
        label="**Measure this mask on the Kernels page →**",
        query_params={"op": op, "mask": look.texts[0], "seq": str(look.seq_q)},
    )
