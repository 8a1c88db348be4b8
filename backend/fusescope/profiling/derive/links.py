"""From a kernel or copy to its launch, from the launch to the operator, the module and the step; graph
replays by order."""

from __future__ import annotations

import re

import numpy as np

from fusescope.profiling.derive import replays
from fusescope.profiling.table import ABSENT, Coded

_STEP = re.compile(r"ProfilerStep#([0-9]{1,15})")
OPERATOR_LINKS = ("external id", "enclosing", *replays.LINKS)


def link(tables: dict[str, dict], captured: list[dict] | None = None) -> dict:
    """Add to kernels and copies: ``launch``, ``operator`` (rows), ``operator_link``, ``module``,
    ``launch_delay_ns``, ``step``.

    The operator is the one whose External id the kernel carries, if it really was open when the kernel was
    launched (old traces number launches and operators alike); else the innermost one around the launch on its
    thread; for the kernels of a graph replay, the operator of the same sequence of kernels where it ran
    eagerly in this trace, or in another one whose kernels (rows of its table, in order of time) are given as
    ``captured``: then ``operator_name`` has it and ``operator`` none. Gives the coverage: {"kernels",
    "launch", "operator", "module", "by": {link: kernels}}, shares of kernels or None.
    """
    operators, launches, ranges = tables["operators"], tables["launches"], tables["ranges"]
    by_id = _rows_by(operators["external_id"])
    each = steps(ranges)
    for name in ("kernels", "copies"):
        table = tables[name]
        launch = _launch(table, launches)
        operator, how = _operator(table, launch, launches, operators, by_id)
        known = launch >= 0
        module = np.full(len(launch), -1, np.int64)
        module[known] = launches["module"].codes[launch[known]]
        inside = operator >= 0
        of_op = np.full(len(launch), -1, np.int64)
        of_op[inside] = operators["module"].codes[operator[inside]]
        delay = np.full(len(launch), ABSENT, np.int64)
        delay[known] = table["ts_ns"][known] - launches["ts_ns"][launch[known]]
        host = table["ts_ns"].copy()
        host[known] = launches["ts_ns"][launch[known]]
        table |= {
            "launch": launch,
            "operator": operator,
            "operator_link": Coded(how, list(OPERATOR_LINKS)),
            "module": Coded(np.where(of_op >= 0, of_op, module), launches["module"].values),
            "launch_delay_ns": delay,
            "step": _step(host, each),
        }
    for name in ("kernels", "copies", "launches"):
        row, names = (tables[name]["operator"], operators["name"])
        code = np.full(len(row), -1, np.int32)
        code[row >= 0] = names.codes[row[row >= 0]]
        tables[name]["operator_name"] = Coded(code, names.values)
    replays.link(tables["kernels"], launches, captured or [], len(OPERATOR_LINKS) - len(replays.LINKS))
    return coverage(tables["kernels"])


def coverage(kernels: dict) -> dict:
    count = len(kernels["ts_ns"])

    def share(rows: np.ndarray) -> float | None:
        return float(rows.sum()) / count if count else None

    how: Coded = kernels["operator_link"]
    return {
        "kernels": count,
        "launch": share(kernels["launch"] >= 0),
        "operator": share(how.codes >= 0),
        "module": share(kernels["module"].codes >= 0),
        "by": {name: int((how.codes == code).sum()) for code, name in enumerate(how.values)},
    }


def _rows_by(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(sorted ids, their rows), without those absent; of equal ids the later row comes last."""
    rows = np.flatnonzero(ids != ABSENT)
    order = rows[np.argsort(ids[rows], kind="stable")]
    return ids[order], order


def _launch(table: dict, launches: dict) -> np.ndarray:
    """Row of the launch with the same correlation id; where a file has several, the last that began before,
    else the first."""
    rows = np.flatnonzero(launches["correlation"] != ABSENT)
    order = rows[np.lexsort((launches["ts_ns"][rows], launches["correlation"][rows]))]
    wanted, count = table["correlation"], len(order)
    if not count:
        return np.full(len(wanted), -1, np.int64)
    ids = launches["correlation"][order]
    first = np.minimum(np.searchsorted(ids, wanted, "left"), count - 1)
    # launches and what looks for its own in one order: by id, by time, of equal times the launch comes first
    both = np.lexsort(
        (
            np.repeat([0, 1], [count, len(wanted)]),
            np.concatenate([launches["ts_ns"][order], table["ts_ns"]]),
            np.concatenate([ids, wanted]),
        )
    )
    last = np.empty(len(both), np.int64)
    last[both] = np.maximum.accumulate(np.where(both < count, both, -1))
    last = last[count:]
    at = np.where((last >= 0) & (ids[last] == wanted), last, first)
    return np.where((ids[at] == wanted) & (wanted != ABSENT), order[at], -1)


def _operator(
    table: dict, launch: np.ndarray, launches: dict, operators: dict, by_id
) -> tuple[np.ndarray, np.ndarray]:
    ids, rows = by_id
    count = len(launch)
    row = np.full(count, -1, np.int64)
    how = np.full(count, -1, np.int32)
    known = launch >= 0
    if len(ids):
        external = table["external_id"].copy()
        absent = known & (external == ABSENT)
        external[absent] = launches["external_id"][launch[absent]]
        at = np.minimum(np.searchsorted(ids, external), len(ids) - 1)
        named = (ids[at] == external) & (external != ABSENT)
        candidate = rows[at]
        start = operators["ts_ns"][candidate]
        when = np.where(known, launches["ts_ns"][launch] if len(launches["ts_ns"]) else 0, 0)
        open_then = (start <= when) & (when <= start + operators["dur_ns"][candidate])
        taken = named & (~known | open_then)
        row[taken], how[taken] = candidate[taken], 0
    around = known & (row < 0)
    row[around] = launches["operator"][launch[around]]
    how[around & (row >= 0)] = 1
    return row, how


def steps(ranges: dict) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(start, end, number) of the profiler's steps on the host, by start."""
    host = ~ranges["cat"].mask(lambda cat: cat.startswith("gpu_"))
    named = [_STEP.fullmatch(text) for text in ranges["name"].values]
    of_code = np.array([ABSENT if m is None else int(m[1]) for m in named] + [ABSENT], np.int64)
    numbers = of_code[ranges["name"].codes]
    rows = np.flatnonzero((numbers != ABSENT) & host)
    rows = rows[np.argsort(ranges["ts_ns"][rows], kind="stable")]
    return ranges["ts_ns"][rows], ranges["ts_ns"][rows] + ranges["dur_ns"][rows], numbers[rows]


def _step(when: np.ndarray, each) -> np.ndarray:
    starts, ends, numbers = each
    if not len(starts):
        return np.full(len(when), ABSENT, np.int64)
    at = np.searchsorted(starts, when, "right") - 1
    inside = (at >= 0) & (when <= ends[np.maximum(at, 0)])
    return np.where(inside, numbers[np.maximum(at, 0)], ABSENT)
