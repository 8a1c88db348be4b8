"""The keys of several cases side by side: what differs among them, and what a key that is left out means."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

ABSENT: Mapping[str, Any] = {
    "tokens": 1,
    "page": "none",
    "window": "none",
    "left": "none",
    "right": "none",
    "softcap": "none",
    "sinks": "no",
    "alibi": "no",
    "bias": "none",
    "score": "none",
    "kv_dtype": "q",
    "weights": "as x",
}
"""What a case means that lacks one of these keys: it leaves them out where they have this value (see
``parameters.Parameter.omitted``), as do cases of runs that are older than the key."""

FOLLOWS: Mapping[str, str] = {"seq_k": "seq", "kv_heads": "heads"}
"""Keys that equal another one where nothing is said."""


def value(case: Mapping[str, Any], key: str) -> Any:
    """None where it neither has the key nor leaves it out for a default."""
    return case[key] if key in case else ABSENT.get(key)


def written(value: Any) -> str:
    """A value of a case in a sentence or title: whole numbers with their digits in groups, "4,096"."""
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def whole(cases: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The cases, each with the keys that it leaves out and another one has."""
    cases = [dict(case) for case in cases]
    keys = [key for key in ABSENT if any(key in case for case in cases)]
    return [case | {key: ABSENT[key] for key in keys if key not in case} for case in cases]


def varying_values(cases: list[dict]) -> dict[str, list]:
    """{key: its distinct values, in the order met} for the keys that differ among cases; a key that changes
    with another, as seq_k that follows seq, is left out."""
    cases, values = whole(cases), {}
    for case in cases:
        for key, value in case.items():
            if value not in values.setdefault(key, []):
                values[key].append(value)
    changing: dict[str, list] = {}
    for key, seen in values.items():
        follows = any(all(case.get(key) == case.get(other) for case in cases) for other in changing)
        if len(seen) > 1 and not follows:
            changing[key] = seen
    return changing
