"""Calls whose like has been checked go straight to the operator: checking and choosing in Python take longer than a launch.

The like of a call are sizes, strides, dtypes, devices and alignment of its tensors, and its other arguments; values do not matter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_KEPT = 256
_PLAIN = {bool, int, float, str, type(None)}


class KnownCalls:
    """Of one operator: what a like of call was found to need, its overload and its kernel."""

    def __init__(self) -> None:
        self._found: dict[tuple, tuple[Callable, tuple]] = {}

    def get(self, like: tuple | None) -> tuple[Callable, tuple] | None:
        """(overload, arguments after the tensors) for a like, or None where it is new."""
        return None if like is None else self._found.get(like)

    def keep(self, like: tuple | None, function: Callable, rest: tuple) -> None:
        """Notes what a call was made with, after it went well."""
        if like is None:
            return
        if len(self._found) >= _KEPT:
            self._found.clear()
        self._found[like] = function, rest


def like_of(tensors: tuple, *others: Any) -> tuple | None:
    """The like of a call as a key; None where something is no dense tensor or no plain value, which the checks then say."""
    like = [x for o in others for x in (type(o), o)]  # 1 is no True
    if not _PLAIN.issuperset(like[::2]):
        return None
    try:
        for t in tensors:
            like += t.shape, t.stride(), t.dtype, t.device, t.storage_offset() & 7, t.requires_grad
    except (AttributeError, TypeError, RuntimeError):
        return None
    return tuple(like)
