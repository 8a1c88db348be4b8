"""The kernels of CUDA graph replays, linked by order to where the same kernels ran eagerly.

One cudaGraphLaunch owns all kernels of its graph, and with torch 2.11 and CUDA 13.0 they carry nothing but
its correlation. What was captured ran in the same order before: the longest equal stretches of (name, grid,
block) say which kernel is which.
"""

from __future__ import annotations

import numpy as np

from fusescope.profiling.table import Coded, Texts, same

LINKS = ("captured run", "captured trace")
"""How a replayed kernel found its operator: in the same trace, or in another one."""
_MOST_STARTS = 64  # places of a captured run that are tried for a replayed kernel
_SHAPE = tuple(f"{what}_{axis}" for what in ("grid", "block") for axis in "xyz")


def is_graph_launch(name: str) -> bool:
    return "GraphLaunch" in name


def link(kernels: dict, launches: dict, captured: list[dict], first_code: int) -> None:
    """Fill operator, operator_name, module and operator_link of replayed kernels, in place.

    captured: kernels of another trace as rows of its table. first_code: of LINKS among the codes of
    operator_link.
    """
    graphs = launches["name"].mask(is_graph_launch)
    launch = kernels["launch"]
    replayed = (launch >= 0) & (graphs[np.maximum(launch, 0)] if len(graphs) else False)
    todo = np.flatnonzero(replayed & (kernels["operator_link"].codes != 0))
    if not len(todo):
        return
    identity = [kernels["name"].codes, *kernels["grid"].T, *kernels["block"].T]
    _, first, key = np.unique(same(identity), return_index=True, return_inverse=True)
    distinct, key = np.column_stack(identity)[first], key.reshape(-1)
    in_time = np.argsort(kernels["ts_ns"], kind="stable")
    eager = in_time[(~replayed & (kernels["operator"] >= 0))[in_time]]
    for rows, place in _each_replay(todo, launch, kernels["ts_ns"], key, key[eager]):
        source = eager[place]
        for column in ("operator", "operator_name", "module"):
            codes = getattr(kernels[column], "codes", kernels[column])
            codes[rows] = codes[source]
        kernels["operator_link"].codes[rows] = first_code
    rest = todo[kernels["operator_link"].codes[todo] != first_code]
    captured = [row for row in captured if row.get("operator_name")]
    if len(rest) and captured:
        _from_other(kernels, launch, rest, key, distinct, captured, first_code + 1)


def _from_other(
    kernels: dict, launch: np.ndarray, rest: np.ndarray, key: np.ndarray, distinct, captured, code: int
) -> None:
    names = kernels["name"].values
    known = {(names[d[0]] if d[0] >= 0 else None, *d[1:]): n for n, d in enumerate(distinct.tolist())}
    captured = sorted(captured, key=lambda row: row["ts_ns"])
    theirs = np.array(
        [known.get((row["name"], *(row.get(c) for c in _SHAPE)), -1) for row in captured], np.int64
    )
    texts = {c: Texts({v: i for i, v in enumerate(kernels[c].values)}) for c in ("operator_name", "module")}
    columns = {c: texts[c].codes([row.get(c) for row in captured]) for c in texts}
    for rows, place in _each_replay(rest, launch, kernels["ts_ns"], key, theirs):
        for column, codes in columns.items():
            kernels[column].codes[rows] = codes[place]
        kernels["operator"][rows] = -1
        kernels["operator_link"].codes[rows] = code
    for column, text in texts.items():
        kernels[column] = Coded(kernels[column].codes, text.values())


def _each_replay(rows: np.ndarray, launch: np.ndarray, ts: np.ndarray, key: np.ndarray, eager: np.ndarray):
    """(rows, their places in ``eager``) of what could be matched, replay by replay; equal replays are matched
    once."""
    places: dict[int, list[int]] = {}
    for place, k in enumerate(eager.tolist()):
        places.setdefault(k, []).append(place)
    order = rows[np.lexsort((ts[rows], launch[rows]))]
    matched: dict[bytes, np.ndarray] = {}
    for one in np.split(order, np.flatnonzero(np.diff(launch[order])) + 1) if places else ():
        keys = key[one]
        name = keys.tobytes()
        if name not in matched:
            matched[name] = _align(keys, eager, places)
        hit = matched[name] >= 0
        yield one[hit], matched[name][hit]


def _align(keys: np.ndarray, eager: np.ndarray, places: dict[int, list[int]]) -> np.ndarray:
    """For each kernel of a replay its place in the eager run, -1 where there is none: longest equal
    stretches, left to right."""
    found = np.full(len(keys), -1, np.int64)
    i = 0
    while i < len(keys):
        best, best_at = 0, -1
        for at in places.get(int(keys[i]), ())[:_MOST_STARTS]:
            length = _equal(keys[i:], eager[at:])
            if length > best:
                best, best_at = length, at
        if best:
            found[i : i + best] = np.arange(best_at, best_at + best)
        i += max(best, 1)
    return found


def _equal(a: np.ndarray, b: np.ndarray) -> int:
    """How many elements agree from the first on; looked at in growing pieces, because most stretches are
    short."""
    most, begin, piece = min(len(a), len(b)), 0, 16
    while begin < most:
        end = min(most, begin + piece)
        differs = np.flatnonzero(a[begin:end] != b[begin:end])
        if len(differs):
            return begin + int(differs[0])
        begin, piece = end, piece * 4
    return most
