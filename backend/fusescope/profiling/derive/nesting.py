"""Which range encloses which on the same thread: parents, self time, modules, and the operator around each
launch."""

from __future__ import annotations

import re

import numpy as np

from fusescope.profiling.derive import enclosing
from fusescope.profiling.table import Coded, Texts

OPERATOR, FRAME, LAUNCH = range(3)
_MODULE = re.compile(r"nn\.Module: (.+)")
_LONG = (
    2000  # letters of a module's path, after which it begins again: frames may lie in frames a million deep
)
_DOTTED = "module: "  # written by our own hooks (torch_trace): the module's full dotted name


def nest(operators: dict, ranges: dict, launches: dict) -> None:
    """Add columns, in place.

    operators: ``parent`` (row, -1 = none), ``depth``, ``self_ns`` (without what its direct children take of
    it: one that outlasts it, only up to its end), ``module`` (dotted). launches: ``operator`` (row of the
    innermost operator that encloses its start, -1 = none), ``module``. ranges: ``module``, for those that are
    modules.

    A module is a python_function "nn.Module: Name_0" (with_stack=True; its dotted name is built of those
    around it), a record_function range "module: dotted.name", or what torch wrote as an operator's "Module
    Hierarchy".
    """
    frames, frame_text, frame_names = _module_frames(ranges)
    sizes = len(operators["ts_ns"]), len(frames), len(launches["ts_ns"])
    pick = [operators, {k: ranges[k][frames] for k in ("ts_ns", "dur_ns", "lane")}, launches]
    ts, dur, lane = (np.concatenate([t[k] for t in pick]) for k in ("ts_ns", "dur_ns", "lane"))
    kind = np.repeat(np.arange(3, dtype=np.int8), sizes)
    row = np.concatenate([np.arange(n) for n in sizes])
    # the longer of two that begin together is the outer one; launches come last
    order = np.lexsort((kind, -dur, ts, lane))
    ts, end, lane, kind, row = ts[order], (ts + dur)[order], lane[order], kind[order], row[order]
    parent, depth = enclosing.find(ts, end, lane, kind < 2)

    # from outside inwards, of every event: the operator around it, how many there are, the module around it,
    # the one inside it
    paths = Texts()
    hierarchy = _hierarchy(operators, paths)
    around, count, module = (
        np.full(len(ts), -1, np.int64),
        np.zeros(len(ts), np.int64),
        np.full(len(ts), -1, np.int64),
    )
    within = module.copy()
    for here in _levels(depth):
        outer = parent[here]
        if depth[here[0]]:
            is_operator = kind[outer] == OPERATOR
            around[here] = np.where(is_operator, row[outer], around[outer])
            count[here] = count[outer] + is_operator
            module[here] = within[outer]
        within[here] = module[here]
        if hierarchy is not None:
            ops = here[kind[here] == OPERATOR]
            own = hierarchy[row[ops]]
            within[ops] = np.where(own >= 0, own, module[ops])
        inner = here[kind[here] == FRAME]
        within[inner] = _paths(module[inner], frame_text[row[inner]], frame_names, paths)

    def column(values: np.ndarray, which: int) -> np.ndarray:
        found, there = np.empty(sizes[which], np.int64), kind == which
        found[row[there]] = values[there]
        return found

    op_parent, op_depth, op_module = (column(v, OPERATOR) for v in (around, count, within))
    launch_op, launch_module = (column(v, LAUNCH) for v in (around, module))
    frame_path = column(within, FRAME)

    self_ns, op_end = operators["dur_ns"].copy(), operators["ts_ns"] + operators["dur_ns"]
    inner = op_parent >= 0
    within_parent = np.minimum(op_end, op_end[op_parent]) - operators["ts_ns"]
    np.subtract.at(self_ns, op_parent[inner], within_parent[inner])
    values = paths.values()
    all_paths = np.full(len(ranges["ts_ns"]), -1, np.int32)
    all_paths[frames] = frame_path
    ranges["module"] = Coded(all_paths, values)
    operators |= {
        "parent": op_parent,
        "depth": op_depth,
        "self_ns": np.maximum(self_ns, 0),
        "module": Coded(op_module, values),
    }
    launches |= {"operator": launch_op, "module": Coded(launch_module, values)}


def _levels(depth: np.ndarray) -> list[np.ndarray]:
    """The events of every depth, from outside inwards."""
    order = np.argsort(depth, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(depth[order])) + 1) if len(depth) else []


def _paths(outer: np.ndarray, text: np.ndarray, names: list[tuple[str, bool]], paths: Texts) -> np.ndarray:
    """Codes of frames' paths, by the module around each and its name."""
    pairs, which = np.unique(outer * (len(names) + 1) + text, return_inverse=True)
    codes, listed = np.empty(len(pairs), np.int64), list(paths)
    for n, pair in enumerate(pairs.tolist()):
        module, at = divmod(pair, len(names) + 1)
        name, whole = names[at]
        path = name if whole or module < 0 or len(listed[module]) > _LONG else f"{listed[module]}.{name}"
        codes[n] = paths[path]
    return codes[which.reshape(-1)]


def _module_frames(ranges: dict) -> tuple[np.ndarray, np.ndarray, list[tuple[str, bool]]]:
    """Rows of ranges that are modules; of each the code of its name; by code the name, and whether that is
    the whole dotted one."""
    names: Coded = ranges["name"]
    of_text = []
    for text in names.values:
        match = _MODULE.fullmatch(text)
        of_text.append(
            (text.removeprefix(_DOTTED), True)
            if text.startswith(_DOTTED)
            else (match[1] if match else "", False)
        )
    host = ~ranges["cat"].mask(lambda cat: cat.startswith("gpu_"))
    module = np.array([whole or bool(text) for text, whole in of_text] + [False])
    rows = np.flatnonzero(module[names.codes] & host)
    return rows, names.codes[rows].astype(np.int64), of_text


def _hierarchy(operators: dict, paths: Texts) -> np.ndarray | None:
    """Codes of the modules that torch itself wrote next to an operator (TorchScript, with_modules=True)."""
    column: Coded = operators["hierarchy"]
    if not column.values:
        return None
    of_code = np.array(
        [paths[".".join(re.findall(r"(\w+)\(", text)) or text] for text in column.values] + [-1]
    )
    return of_code[column.codes]
