"""Bounds of positions in strided-permuted order (mod m): 0, m, 2m, …, 1, m + 1, …

The least and the greatest position of a tile in that order say nothing of remainders, which such an order is
for. So a value is kept as m · inner + rest: a remainder by a divisor of m depends on the rest alone, a
quotient on both without a gap, and what else a formula does is left to the bounds of the sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral

from fusescope.masks.common.bounds import Spans


def in_order(places: Spans, modulus: int, size: int) -> Spans:
    """The positions at these places of 0 … size − 1 in that order; modulus divides size."""
    if modulus == 1:
        return places
    return _strided(modulus, places % (size // modulus), places // (size // modulus))


@dataclass(eq=False, slots=True)
class Strided(Spans):
    """modulus · inner + rest, element by element; low, high, base and shape are those of the sum."""

    modulus: int = 1
    inner: Spans | None = None
    rest: Spans | None = None

    def __add__(self, other):
        if isinstance(other, Strided) and other.modulus == self.modulus:
            return _strided(self.modulus, self.inner + other.inner, self.rest + other.rest)
        if isinstance(other, Integral):
            return _strided(self.modulus, self.inner, self.rest + other)
        return Spans.__add__(self, other)

    __radd__ = __add__

    def __neg__(self):
        return _strided(self.modulus, -self.inner, -self.rest)

    def __mod__(self, other):
        return self.rest % other if self._divided_by(other) else Spans.__mod__(self, other)

    def __floordiv__(self, other):
        if not self._divided_by(other):
            return Spans.__floordiv__(self, other)
        return self.inner * (self.modulus // other) + self.rest // other

    def _divided_by(self, number) -> bool:
        return isinstance(number, Integral) and number > 0 and self.modulus % number == 0


def _strided(modulus: int, inner: Spans, rest: Spans) -> Strided:
    whole = inner * modulus + rest
    return Strided(whole.low, whole.high, whole.most, whole.base, whole.shape, modulus, inner, rest)
