"""What skipping achieves: the fastest implementation on a mask over the fastest on the full mask, from the
records of all runs."""

from __future__ import annotations

import json
import math
from collections import defaultdict

import pandas as pd
import streamlit as st

from fusescope import masks
from fusescope.core import same_code
from fusescope.store import library
from pages._ui.forms import mask_files
from pages._ui.limits import rates
from pages._ui.masks import stats

SHAPE = ("batch", "heads", "kv_heads", "seq", "seq_k", "head_dim", "bias", "format")
"""Parameters of a case, other than the mask, that both times must share."""
FULL = "full"
_MODES = ("graph", "eager", "graph_cold", "eager_cold")
_USUAL = {"heads": 12, "head_dim": 64}
"""BERT-base's heads: of several shapes measured at a length, the largest batch with these counts."""
_KEPT = 16  # operators
_ENOUGH = 0.5
"""Share of the most implementations measured on a case that a newer run needs in order to be preferred."""


@st.cache_data(max_entries=_KEPT, show_spinner=False)
def records(op: str, state: int) -> pd.DataFrame:
    """Correct records of the operator with a time, oldest first: op, run, created, device_name, impl, dtype,
    source_hash, speedup, the case's keys, ``mode`` and ``ms`` of the first timing mode measured, and
    ``traffic``, the minimum of a call in MB (n/a where the record does not have it). ``state``:
    ``run_data.state``."""
    table = library.records(op=op)
    table = table[table.status == "ok"]
    if table.empty:
        return pd.DataFrame()
    cases = pd.DataFrame([json.loads(c) for c in table["case"]], index=table.index)
    cases = cases.reindex(columns=list(dict.fromkeys([*cases.columns, "mask"])))
    columns = ["op", "run", "created", "device_name", "impl", "dtype", "source_hash", "speedup", "gbps"]
    table = table[columns + [f"{m}_ms" for m in _MODES]].join(cases)
    parts = [
        table[table[f"{m}_ms"].notna()].assign(mode=m, ms=table[f"{m}_ms"].astype(float)) for m in _MODES
    ]
    first = pd.concat(parts)
    first = first[~first.index.duplicated()].sort_values(["created", "run"], kind="stable")
    first = first.assign(traffic=first.gbps.astype(float) * first.ms)  # a record's GB/s is of that mode
    return first[first["mask"].notna()].drop(columns=["gbps", *(f"{m}_ms" for m in _MODES)])


@st.cache_data(max_entries=2 * _KEPT, show_spinner=False)
def pairs(op: str, state: int, every: bool = False) -> pd.DataFrame:
    """``gains`` of all records of an operator. ``state``: ``run_data.state``."""
    return gains(records(op, state), every)


def gains(table: pd.DataFrame, every: bool = False) -> pd.DataFrame:
    """One row per device, dtype, timing mode, shape and mask whose shape was measured on the full mask too.

    ``impl``, ``ms``, ``traffic``: of the fastest on the mask; ``full_impl``, ``full_ms``: on the full mask;
    ``gain``; ``run``, ``full_run``: one run where there is one with both, the newest; ``older``: a newer
    source of ``impl``, with other machine code, was measured on something else. every: a row for each
    implementation instead of the fastest.

    Empty without such a pair. The file of a mask is not needed.
    """
    if table.empty:
        return pd.DataFrame()
    shape = [c for c in SHAPE if c in table]
    keys = ["device_name", "dtype", "mode", *shape]
    newest = table.dropna(subset="source_hash").groupby(["device_name", "dtype", "impl"]).source_hash.last()
    rows = []
    for key, group in table.groupby(keys, sort=False, dropna=False):
        by_mask = {m: _by_run(g) for m, g in group.groupby("mask", sort=False)}
        full = by_mask.pop(FULL, {})
        for mask, here in by_mask.items() if full else ():
            run, full_run = _pair(here, full)
            timed, whole = here[run].sort_values("ms"), full[full_run].sort_values("ms").iloc[0]
            for r in (timed if every else timed.head(1)).itertuples():
                known = newest.get((r.device_name, r.dtype, r.impl))
                older = isinstance(known, str) and not same_code.same(r.op, r.impl, r.source_hash, known)
                rows.append(
                    dict(zip(keys, key, strict=True))
                    | {"mask": mask, "impl": r.impl, "ms": r.ms, "run": run, "traffic": r.traffic}
                    | {"full_impl": whole.impl, "full_ms": whole.ms, "full_run": full_run}
                    | {"gain": whole.ms / r.ms, "older": older}
                )
    return pd.DataFrame(rows)


def shape(row) -> str:
    """Batch, heads (query/KV where they differ), length and head size of a row: "4 × 32/8 × 4,096 × 128"."""
    heads = f"{int(row.heads)}"
    kv = getattr(row, "kv_heads", row.heads)
    if kv == kv and kv != row.heads:  # a NaN is not known
        heads += f"/{int(kv)}"
    return f"{int(row.batch)} × {heads} × {int(row.seq):,} × {int(row.head_dim)}"


def _by_run(group: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Run → its records of one case, newest run last."""
    return {run: rows.drop_duplicates("impl", keep="last") for run, rows in group.groupby("run", sort=False)}


def _pair(here: dict[str, pd.DataFrame], full: dict[str, pd.DataFrame]) -> tuple[str, str]:
    """The runs with the times on the mask and on the full mask."""
    both = {run: here[run] for run in here if run in full}
    if both:
        run = _preferred(both)
        return run, run
    return _preferred(here), _preferred(full)


def _preferred(runs: dict[str, pd.DataFrame]) -> str:
    """The newest of those that have enough implementations: a trivial new run hides no better one."""
    most = max(map(len, runs.values()))
    return [run for run, rows in runs.items() if len(rows) >= _ENOUGH * most][-1]


def with_limits(rows: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """(the rows with what bounds their gain, how many were left out because the mask's file is not on this
    machine or keeps no element).

    ``density``; ``ideal`` = 1 / density, of the elements; ``memory``: the time of the full mask over that of
    the minimum traffic at the device's rate (n/a where either is unknown); ``limit``: the lower of the two;
    ``share`` of it achieved."""
    if rows.empty:
        return rows, 0
    found = defaultdict(lambda: None)
    for mask, q, k in rows[["mask", "seq", "seq_k"]].drop_duplicates().itertuples(index=False):
        found[mask, q, k] = _density(mask, int(q), int(k))
    density = [found[m, q, k] for m, q, k in zip(rows["mask"], rows.seq, rows.seq_k, strict=True)]
    rows = rows.assign(density=pd.Series(density, index=rows.index, dtype=float))
    known = rows[rows.density.notna() & (rows.density > 0)]
    rate = known.device_name.map({name: rates.bandwidth(name) for name in known.device_name.unique()})
    known = known.assign(ideal=1 / known.density, memory=known.full_ms * rate.astype(float) / known.traffic)
    known = known.assign(limit=known[["ideal", "memory"]].min(axis=1))
    return known.assign(share=known.gain / known.limit), len(rows) - len(known)


def _density(mask: str, seq_q: int, seq_k: int) -> float | None:
    try:
        stats.check(seq_q, seq_k)
        return stats.density(mask, seq_q, seq_k, mask_files.stamp(mask))
    except (ValueError, OSError):
        return None


def of_mask(rows: pd.DataFrame, text: str, seq_q: int, seq_k: int, devices: list[str]) -> pd.DataFrame:
    """The rows of one mask at the measured length nearest to seq_q × seq_k, on the first of ``devices`` that
    has any, else on the device with the most; the shape to quote first, then by batch. Empty without any."""
    if rows.empty:
        return rows
    cases = rows[["mask", "seq_k"]].drop_duplicates().itertuples(index=False)
    alike = {(mask, k) for mask, k in cases if same(mask, text, int(k))}
    mine = rows[[case in alike for case in zip(rows["mask"], rows.seq_k, strict=True)]]
    if mine.empty:
        return mine
    most = mine.device_name.value_counts().index[0]
    device = next((d for d in devices if (mine.device_name == d).any()), most)
    mine = mine[mine.device_name == device]
    away = [_doublings(q, seq_q) + _doublings(k, seq_k) for q, k in zip(mine.seq, mine.seq_k, strict=True)]
    mine = mine.assign(away=away)
    mine = mine[mine.away == mine.away.min()]
    unusual = sum((mine[name] != value).astype(int) for name, value in _USUAL.items() if name in mine)
    order = mine.assign(unusual=unusual, cold=mine["mode"].map(_MODES.index))
    order = order.sort_values(["cold", "unusual", "batch", "seq"], ascending=[True, True, False, False])
    return order[order.seq == order.seq.iloc[0]].drop(columns=["away", "unusual", "cold"])


def nearest(rows: pd.DataFrame, text: str, seq_q: int, seq_k: int) -> str | None:
    """The mask of the same name as ``text`` whose parameters and measured length are nearest to it at seq_q ×
    seq_k; None without any."""
    if rows.empty or text.startswith("file:"):
        return None
    asked = masks.parse(text)

    def away(mask: str, q: int, k: int) -> float:
        return _apart(asked, masks.parse(mask), seq_k, k) + _doublings(q, seq_q) + _doublings(k, seq_k)

    cases = rows[["mask", "seq", "seq_k"]].drop_duplicates().itertuples(index=False)
    alike = [(m, int(q), int(k)) for m, q, k in cases if m.partition(":")[0] == asked.name]
    return min(alike, key=lambda case: (away(*case), case))[0] if alike else None


def _apart(one: masks.Mask, other: masks.Mask, one_k: int, other_k: int) -> float:
    """How far the parameters of two masks of one name are apart, in doublings, each on its own keys; 1 for
    each that is no number and differs."""
    a, b = dict(one.resolved(one_k).given), dict(other.resolved(other_k).given)
    return sum(_between(a[name], b[name]) for name in a if a[name] != b.get(name))


def _between(a: object, b: object) -> float:
    numbers = all(isinstance(value, int | float) and value >= 0 for value in (a, b))
    return _doublings(a + 1, b + 1) if numbers else 1.0


def same(one: str, other: str, seq_k: int) -> bool:
    """Whether two texts mean one mask for seq_k keys, its defaults written out or not."""
    if one == other or one.startswith("file:") or other.startswith("file:"):
        return one == other
    try:
        return masks.parse(one).resolved(seq_k) == masks.parse(other).resolved(seq_k)
    except ValueError:
        return False


def _doublings(a: float, b: float) -> float:
    return abs(math.log2(a / b))
