"""Evolutionary search: of the best schemes two are crossed at a place of the layer, and some cuts of the
child are flipped."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from fusescope.search import encoding

_FIRST = 24  # drawn at random
_PARENTS = 12  # the best so far, from which parents are taken
_FLIPS = 1.5 / (encoding.OPERATORS - 1)  # probability that a cut is flipped
_TRIES = 200  # for a child that is a candidate and new; then one is drawn at random


class Evolutionary:
    """A ``Strategy`` over distinct canonical codes."""

    def __init__(self, candidates: Sequence[str], seed: int):
        self._rng = random.Random(seed)
        self._left = dict.fromkeys(self._rng.sample(list(candidates), len(candidates)))
        self._known: dict[str, float] = {}
        self._asked = 0

    def ask(self, count: int) -> list[str]:
        chosen = []
        while self._left and len(chosen) < count:
            code = next(iter(self._left)) if self._asked < _FIRST or len(self._known) < 2 else self._child()
            del self._left[code]
            chosen.append(code)
            self._asked += 1
        return chosen

    def tell(self, times: Mapping[str, float | None]) -> None:
        self._known.update({c: ms for c, ms in times.items() if ms is not None})

    def _child(self) -> str:
        parents = sorted(self._known, key=self._known.get)[:_PARENTS]
        for _ in range(_TRIES):
            one, other = self._rng.sample(parents, 2) if len(parents) > 1 else (parents[0], parents[0])
            place = self._rng.randrange(1, encoding.OPERATORS)
            attention = encoding.attention(self._rng.choice((one, other)))
            cuts = {c for c in encoding.boundaries(one) if c < place} | {
                c for c in encoding.boundaries(other) if c >= place
            }
            for cut in range(encoding.OPERATORS - 1):
                if self._rng.random() < _FLIPS:
                    cuts ^= {cut}
            if self._rng.random() < _FLIPS:
                attention = not attention
            code = scheme(attention, cuts)
            if code in self._left:
                return code
        return next(iter(self._left))


def scheme(attention: bool, cuts: set[int]) -> str:
    """The canonical code with these cuts, made to fit around the hand-written attention where there is it."""
    if attention:
        first, last = encoding.ATTENTION.start - 1, encoding.ATTENTION.stop - 1
        cuts = {c for c in cuts if not first <= c <= last} | {first, last}
    return encoding.encode(attention, cuts)
