"""Which range encloses which on the same thread: parents, self time, modules, and the operator around each launch."""

from __future__ import annotations

import re

import numpy as np

from backend.profiling.table import Coded, Texts

_MODULE = re.compile(r"nn\.Module: (.+)")
_LONG = 2000  # letters of a module's path, after which it begins anew: frames may lie in frames a million deep
_DOTTED = "module: "  # written by our own hooks (torch_trace): the module's full dotted name


def nest(operators: dict, ranges: dict, launches: dict) -> None:
    """Add columns, in place.

    operators: ``parent`` (row, -1 = none), ``depth``, ``self_ns`` (without its direct children), ``module`` (dotted).
    launches: ``operator`` (row of the innermost operator that encloses its start, -1 = none), ``module``.
    ranges: ``module``, for those that are modules.

    A module is a python_function "nn.Module: Name_0" (with_stack=True; its dotted name is built of those around it), a
    record_function range "module: dotted.name", or what torch wrote as an operator's "Module Hierarchy".
    """
    frames, names = _module_frames(ranges)
    sizes = len(operators["ts_ns"]), len(frames), len(launches["ts_ns"])
    pick = [operators, {k: ranges[k][frames] for k in ("ts_ns", "dur_ns", "lane")}, launches]
    ts, dur, lane = (np.concatenate([t[k] for t in pick]) for k in ("ts_ns", "dur_ns", "lane"))
    kind = np.repeat(np.arange(3, dtype=np.int8), sizes)
    row = np.concatenate([np.arange(n) for n in sizes])
    # the longer of two that begin together is the outer one; launches come last
    order = np.lexsort((kind, -dur, ts, lane))

    paths = Texts()
    op_parent, op_depth, op_module = (np.full(sizes[0], fill, np.int64) for fill in (-1, 0, -1))
    launch_op, launch_module = np.full(sizes[2], -1, np.int64), np.full(sizes[2], -1, np.int64)
    frame_path = np.full(sizes[1], -1, np.int64)
    hierarchy = _hierarchy(operators, paths)

    listed = paths.values()
    ends: list[int] = []
    stack: list[tuple[int, int, int]] = []  # operator, module, depth of operators
    at_lane = None
    columns = (ts[order], (ts + dur)[order], lane[order], kind[order], row[order])
    for start, end, on, what, i in zip(*(c.tolist() for c in columns)):
        if on != at_lane:
            at_lane, ends, stack = on, [], []
        while ends and ends[-1] <= start:
            ends.pop()
            stack.pop()
        op, module, depth = stack[-1] if stack else (-1, -1, 0)
        if what == 2:
            launch_op[i], launch_module[i] = op, module
            continue
        if what == 0:
            op_parent[i], op_depth[i] = op, depth
            if hierarchy is not None and hierarchy[i] >= 0:
                module = int(hierarchy[i])
            op_module[i] = module
            stack.append((i, module, depth + 1))
        else:
            name, whole = names[i]
            path = name if whole or module < 0 or len(listed[module]) > _LONG else f"{listed[module]}.{name}"
            module = paths[path]
            if module == len(listed):
                listed.append(path)
            frame_path[i] = module
            stack.append((op, module, depth))
        ends.append(end)

    self_ns = operators["dur_ns"].copy()
    inner = op_parent >= 0
    np.subtract.at(self_ns, op_parent[inner], operators["dur_ns"][inner])
    values = paths.values()
    all_paths = np.full(len(ranges["ts_ns"]), -1, np.int32)
    all_paths[frames] = frame_path
    ranges["module"] = Coded(all_paths, values)
    operators |= {"parent": op_parent, "depth": op_depth, "self_ns": np.maximum(self_ns, 0), "module": Coded(op_module, values)}
    launches |= {"operator": launch_op, "module": Coded(launch_module, values)}


def _module_frames(ranges: dict) -> tuple[np.ndarray, list[tuple[str, bool]]]:
    """Rows of ranges that are modules; of each its name, and whether that is the whole dotted one."""
    names: Coded = ranges["name"]
    of_text = []
    for text in names.values:
        match = _MODULE.fullmatch(text)
        if text.startswith(_DOTTED):
            of_text.append((text.removeprefix(_DOTTED), True))
        else:
            of_text.append((match[1], False) if match else None)
    host = ~ranges["cat"].mask(lambda cat: cat.startswith("gpu_"))
    rows = np.flatnonzero(names.mask(lambda text: text.startswith(_DOTTED) or _MODULE.fullmatch(text)) & host)
    return rows, [of_text[code] for code in names.codes[rows].tolist()]


def _hierarchy(operators: dict, paths: Texts) -> np.ndarray | None:
    """Codes of the modules that torch itself wrote beside an operator (TorchScript, with_modules=True)."""
    column: Coded = operators["hierarchy"]
    if not column.values:
        return None
    of_code = np.array([paths[".".join(re.findall(r"(\w+)\(", text)) or text] for text in column.values] + [-1])
    return of_code[column.codes]
