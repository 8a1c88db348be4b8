"""Types of what a profile's JSON files hold, checked where they are read: a stranger may have made them.

A shape is str, bool, int, float (any finite number), [shape] for a list, {"*": shape} for an object of any
keys, or an object's keys with their shapes, "key?" for one that may be missing; (shape,) may be null. Keys
that are not named are not looked at.
"""

from __future__ import annotations

import math
from typing import Any

_WORDS = {str: "text", bool: "true or false", int: "a whole number", float: "a finite number"}
_LARGEST = 1 << 63
_SHOWN = 60  # characters of a key in a message

_SPAN = {"first_ns": float, "last_ns": float, "busy_ns": float, "kernel_ns?": float, "copy_ns?": float}
_GAP = {"ts_ns": float, "dur_ns": float, "device?": (int,)}
_CLOCK = {"ranks": [int], "host?": (int,), "offset_ns": float, "collectives?": (int,)}
_LINKED = {"kernels?": (int,), "by?": ({"*": int},)}
_RANK = {"rank": int, "host?": (int,), "world_size?": (int,), "events?": (int,)}

SUMMARY = {
    "source": str,
    **dict.fromkeys(("file?", "form?"), (str,)),
    **dict.fromkeys(("file_bytes?", "events?", "launches?"), (int,)),
    "notes?": [str],
    "gpus?": [{"name?": (str,), "cc?": (str,), "sms?": (int,), "id?": (int,)}],
    "rows?": {"*": int},
    "totals?": ({"*": {"events": int, "total_ns": float}},),
    "devices?": ([_SPAN | {"device?": (int,)}],),
    "idle?": ({"*": {"gaps": int, "total_ns": float}},),
    "longest_gaps?": ([_GAP | dict.fromkeys(("cause?", "before?", "after?"), (str,))],),
    "coverage?": (_LINKED | dict.fromkeys(("launch?", "operator?", "module?"), (float,)),),
    "span_ns?": ([float],),
    "memory?": ({"*": (int,)},),
    "on_device?": bool,
    "ranks?": [_RANK | dict.fromkeys(("file?", "backend?"), (str,))],
    "clocks?": [_CLOCK | dict.fromkeys(("estimate_ns?", "spread_ns?"), (float,))],
    "critical_path?": [{"rank": int, "kind": str, "ns": float, "share": float}],
}
"""summary.json of a profile."""

_US = dict.fromkeys(("total_us", "mean_us", "min_us", "max_us"), float)
_LAUNCH = dict.fromkeys(("registers?", "shared_bytes?"), (float,)) | {"grid?": ([int],), "block?": ([int],)}
FACTS = {
    "kernels": {"kernels": [{"name": str, "calls": int} | _US | _LAUNCH]},
    "telemetry": {"count": int, "source": str, "throttled?": (float,)},
    "memory": {"note?": (str,)},
}
"""kernels.json, telemetry.json and memory.json next to it."""


def problem(value: Any, shape: Any, where: str = "") -> str | None:
    """What is not as the shape has it: "its devices.0.busy_ns must be a finite number"; None where all is."""
    if isinstance(shape, tuple):
        if value is None:
            return None
        (shape,) = shape
    if isinstance(shape, type):
        return None if _is(value, shape) else f"its {where} must be {_WORDS[shape]}"
    if not isinstance(value, type(shape)):
        return f"its {where} must be {'a list' if isinstance(shape, list) else 'an object'}"
    if isinstance(shape, list):
        pairs = [(str(n), one, shape[0]) for n, one in enumerate(value)]
    elif "*" in shape:
        pairs = [(key, one, shape["*"]) for key, one in value.items()]
    else:
        pairs = [
            (key.rstrip("?"), value.get(key.rstrip("?")), of)
            for key, of in shape.items()
            if key.rstrip("?") in value or not key.endswith("?")
        ]
    for key, one, of in pairs:
        shown = "".join(c if c.isprintable() else "?" for c in key[:_SHOWN])
        if why := problem(one, of, f"{where}.{shown}" if where else shown):
            return why
    return None


def _is(value: Any, kind: type) -> bool:
    if kind is float and type(value) is float:
        return math.isfinite(value)
    kind = int if kind is float else kind
    return type(value) is kind and (kind is not int or abs(value) < _LARGEST)
