"""The same kernel under the names that different profilers give it, and matching launches of two profilers to
each other."""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

_NO_NAME = re.compile(r"\(anonymous namespace\)|<unnamed>|\bunnamed>|\{anonymous\}")


def base(name: str) -> str:
    """The function's own name: no return type, namespaces, template arguments or parameters; "k" of "void
    a::k<int>(float*)"."""
    text = _NO_NAME.sub("", name).strip()
    outside, depth = [], 0
    for letter in text:
        depth += letter in "<("
        if depth <= 0:
            outside.append(letter)
        depth -= letter in ">)"
    plain = re.split(r"::|\s", "".join(outside).strip())
    return plain[-1] or text


def match(profiled: Sequence[Mapping[str, Any]], traced: Sequence[Mapping[str, Any]]) -> list[int | None]:
    """For each profiled launch the index of its launch in the trace: same base name, grid and block, in order
    of appearance.

    Rows have name, grid_x … block_z. A launch that the trace holds more often than the profile is matched
    from its first on; one without a partner gives None. Where a profile has no grid (a summary), the name
    alone decides.
    """
    waiting: dict[Hashable, deque[int]] = defaultdict(deque)
    named: dict[str, list[int]] = defaultdict(list)
    for i, row in enumerate(traced):
        name = base(str(row["name"]))
        waiting[name, _shape(row)].append(i)
        named[name].append(i)
    found: list[int | None] = []
    for row in profiled:
        name, shape = base(str(row["name"])), _shape(row)
        if None in shape:
            found.append(named[name][0] if named.get(name) else None)
        else:
            queue = waiting.get((name, shape))
            found.append(queue.popleft() if queue else None)
    return found


def _shape(row: Mapping[str, Any]) -> tuple[int | None, ...]:
    values = (row.get(f"{what}_{axis}") for what in ("grid", "block") for axis in "xyz")
    return tuple(None if v is None or v != v else int(v) for v in values)
