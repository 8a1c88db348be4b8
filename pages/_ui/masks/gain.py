"""What was gained by a mask in every run there is, against the 1 / density that skipping could gain."""

from __future__ import annotations

import json

import pandas as pd
import streamlit as st

from fusescope import ops
from fusescope.charts.masks import gain
from fusescope.store import library
from pages._ui.app import url
from pages._ui.masks import stats
from pages._ui.widgets import elements

_AGAINST = {"full": "the same kernel on the full mask", "baseline": "the run's baseline with the same mask"}
_MOST = 3000  # records drawn; the newest count


def draw(state: url.State, look) -> None:
    """The chart, its table, and what was left out and why."""
    with_masks = [op for op in ops.names() if any(p.kind == "mask" for p in ops.load(op).PARAMETERS)]
    a, b, c = st.columns(3)
    op = a.selectbox("operator", with_masks, key=state.seed("op", with_masks[0], url.one_of(with_masks)))
    against = b.selectbox(
        "faster than",
        list(_AGAINST),
        key=state.seed("against", "full", url.one_of(list(_AGAINST))),
        format_func=_AGAINST.get,
    )
    state.keep("op", op, with_masks[0])
    state.keep("against", against, "full")
    table = records(op)
    if table.empty:
        _nothing(op, look)
        return
    devices = list(dict.fromkeys(table.device_name[::-1]))
    device = c.selectbox("measured on", devices, key=state.seed("on", devices[0], url.one_of(devices)))
    state.keep("on", device, devices[0])
    only = st.toggle("only the masks above", key=state.seed("only", False, lambda t: t == "yes"))
    state.keep("only", "yes" if only else "")
    table = table[table.device_name == device]
    points, missing = gains(table, against)
    if only:
        points = points[points["mask"].isin(look.texts)]
    if points.empty:
        st.caption(f"No record of {ops.load(op).TITLE} on {device} to draw here. " + _why(missing, against))
        return
    what = "Speed-up over the full mask" if against == "full" else "Speed-up over the run's baseline"
    fig = gain.against_density(points, f"{what}, by density", f"{device} · {gain.words(points)}", look.theme)
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
        f"{len(points)} records. {_why(missing, against)} Times are medians of the kernel by graph replay where there is one, else of the eager call."
    )


@st.cache_data(ttl=20, show_spinner=False)
def records(op: str) -> pd.DataFrame:
    """Right records of the operator, newest last, with the case's keys as columns, the mode that counts and
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
    """(records with gain, density and label; how many had nothing to be compared with). Full masks themselves
    are left out."""
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
    """None for a mask that this machine cannot make (a file that is not here)."""
    try:
        stats.check(int(seq_q), int(seq_k))
        return stats.density(mask, int(seq_q), int(seq_k), stats.stamp(mask))
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
        else "they are a baseline, or were not compared with one"
    )
    return f"{missing} are left out: {lacks}, or the mask's file is not here."


def _nothing(op: str, look) -> None:
    st.markdown(f"**{ops.load(op).TITLE}** was not measured with a mask here yet.")
    st.page_link(
        "pages/kernels.py",
        label="**Measure this mask on the Kernels page →**",
        query_params={"op": op, "mask": look.texts[0], "seq": str(look.seq_q)},
    )
