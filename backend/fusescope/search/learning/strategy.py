"""What a search strategy is, and the two that learn nothing.

A strategy proposes codes and gets their times: ``ask(count)`` returns canonical codes that it did not return
before, none when all were; ``tell({code: ms or None})`` takes the times, None where a scheme failed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

BATCH = 8  # codes proposed at a time and measured together


class Strategy(Protocol):
    def ask(self, count: int) -> list[str]:
        """At most ``count`` canonical codes, new ones."""

    def tell(self, times: Mapping[str, float | None]) -> None:
        """The times in ms, None where a scheme failed."""


class Listed:
    """The candidates in their order."""

    def __init__(self, order: Sequence[str]):
        self._order, self._next = order, 0

    def ask(self, count: int) -> list[str]:
        some = list(self._order[self._next : self._next + count])
        self._next += len(some)
        return some

    def tell(self, times: Mapping[str, float | None]) -> None:
        """Times change nothing."""
