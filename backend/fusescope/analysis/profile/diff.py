"""Two profiles against each other, by kernel, operator or module: faster, slower, new, gone; in absolute and
relative time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fusescope.analysis.kernel_names import base

BY = {
    "kernel": ("kernel_summary", ("name",), "total_ns", "calls"),
    "operator": ("operator_summary", ("name", "shapes"), "self_device_ns", "calls"),
    "operator on the host": ("operator_summary", ("name", "shapes"), "self_host_ns", "calls"),
    "module": ("module_summary", ("module",), "total_device_ns", "kernels"),
}
"""What is compared → the table, the columns that name a row, its time in ns and its count."""
STATES = ("faster", "slower", "same", "new", "gone")


@dataclass(frozen=True)
class Difference:
    """One kernel, operator or module. Times in ns per step; delta = b − a; speedup = a / b, > 1 where b is
    faster (None where either is 0)."""

    name: str
    detail: str
    state: str
    a_ns: float
    b_ns: float
    delta_ns: float
    speedup: float | None
    a_calls: float
    b_calls: float


def diff(
    a: Sequence[Mapping[str, Any]],
    b: Sequence[Mapping[str, Any]],
    by: str = "kernel",
    a_steps: int = 1,
    b_steps: int = 1,
    tolerance: float = 0.02,
) -> list[Difference]:
    """Rows of the table that BY names, from both profiles; the largest change first.

    a_steps, b_steps: how many steps each profile holds; times and calls are divided by them. tolerance: a
    relative change that counts as the same (profiled times are no latencies: a small one means nothing). A
    kernel that only one profile has is paired with one of the same function name that only the other has, if
    each has but one: template arguments change often. Modules under another root are paired by what follows
    it, down to the numbered layers of both: in a layer of another class of model the same name may be other
    work. ValueError for another ``by``, steps below 1, a negative tolerance.
    """
    if by not in BY:
        raise ValueError(f"a difference is by {', '.join(BY)}, not {by!r}")
    if min(a_steps, b_steps) < 1:
        raise ValueError(f"a profile has at least one step, not {min(a_steps, b_steps)}")
    if tolerance < 0:
        raise ValueError(f"the tolerance is at least 0, not {tolerance!r}")
    _, keys, time, count = BY[by]
    before, after = _sums(a, keys, time, count, a_steps), _sums(b, keys, time, count, b_steps)
    pairs = [(k, k) for k in before if k in after]
    pairs += (
        _renamed(before, after)
        if by == "kernel"
        else _under_another_root(before, after)
        if by == "module"
        else []
    )
    pairs = [(x, y) for x, y in pairs if before[x][0] or after[y][0]]
    before, after = (
        {k: v for k, v in side.items() if v[0]} | {p[i]: side[p[i]] for p in pairs}
        for i, side in enumerate((before, after))
    )
    used = {x for pair in pairs for x in (("a", pair[0]), ("b", pair[1]))}
    rows = [_row(x, y, before[x], after[y], tolerance) for x, y in pairs]
    rows += [_row(k, k, v, None, tolerance) for k, v in before.items() if ("a", k) not in used]
    rows += [_row(k, k, None, v, tolerance) for k, v in after.items() if ("b", k) not in used]
    return sorted(rows, key=lambda r: (-abs(r.delta_ns), r.name, r.detail))


def totals(rows: Sequence[Difference]) -> dict[str, dict[str, float]]:
    """Per state: {"rows", "a_ns", "b_ns", "delta_ns"}."""
    found = {state: {"rows": 0, "a_ns": 0.0, "b_ns": 0.0, "delta_ns": 0.0} for state in STATES}
    for row in rows:
        entry = found[row.state]
        entry["rows"] += 1
        for key in ("a_ns", "b_ns", "delta_ns"):
            entry[key] += getattr(row, key)
    return found


def _sums(
    rows: Sequence[Mapping[str, Any]], keys, time: str, count: str, steps: int
) -> dict[tuple, tuple[float, float]]:
    found: dict[tuple, tuple[float, float]] = {}
    for row in rows:
        key = tuple(_text(row.get(k)) for k in keys)
        ns, calls = found.get(key, (0.0, 0.0))
        found[key] = ns + float(row[time]) / steps, calls + float(row[count]) / steps
    return found


def _renamed(before: dict, after: dict) -> list[tuple[tuple, tuple]]:
    sides = []
    for mine, other in ((before, after), (after, before)):
        only: dict[str, list[tuple]] = {}
        for key in mine:
            if key not in other:
                only.setdefault(base(key[0]), []).append(key)
        sides.append({name: keys[0] for name, keys in only.items() if len(keys) == 1})
    return [(key, sides[1][name]) for name, key in sides[0].items() if name in sides[1]]


def _under_another_root(before: dict, after: dict) -> list[tuple[tuple, tuple]]:
    roots = [{key[0].partition(".")[0] for key in side} for side in (before, after)]
    if any(len(found) != 1 for found in roots) or roots[0] == roots[1]:
        return []
    paths = [{tuple(key[0].split(".")[1:]): key for key in side} for side in (before, after)]
    layers = [
        path
        for path in paths[0]
        if path in paths[1] and [part.isdecimal() for part in path].count(True) == 1 and path[-1].isdecimal()
    ]
    shared = {path[:end] for path in [(), *layers] for end in range(len(path) + 1)}
    return [
        (paths[0][path], paths[1][path]) for path in sorted(shared) if path in paths[0] and path in paths[1]
    ]


def _row(x: tuple, y: tuple, a, b, tolerance: float) -> Difference:
    (a_ns, a_calls), (b_ns, b_calls) = a or (0.0, 0.0), b or (0.0, 0.0)
    if a is None or b is None:
        state = "new" if a is None else "gone"
    elif abs(b_ns - a_ns) <= tolerance * max(a_ns, b_ns):
        state = "same"
    else:
        state = "faster" if b_ns < a_ns else "slower"
    detail = y[1] if len(y) > 1 else (f"was {x[0]}" if x != y else "")
    return Difference(
        y[0], detail, state, a_ns, b_ns, b_ns - a_ns, a_ns / b_ns if a_ns and b_ns else None, a_calls, b_calls
    )


def _text(value: Any) -> str:
    return "" if value is None or value != value else str(value)
