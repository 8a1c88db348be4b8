"""A mask's formula on whole tiles: the same ``predicate``, evaluated on bounds instead of positions.

``Spans`` stand for the integers of each tile by their least and greatest value, ``Flags`` for its truth
values by whether any may and whether all must be true. They have the operators that predicates are made of,
so a mask's file says nothing besides its predicate: + − · // % >> & with whole numbers, abs, comparisons,
& | ^ ~, and tables indexed by such values. Anything else (another function, a float, ``if`` on a position)
raises, mostly ``Unbounded``. Bounds may be too wide, never too narrow.

Where keys are requested, both also have what the values of a tile depend on besides the formula: tiles with
equal keys hold equal values, place by place. All arrays are NumPy's or all are torch's, int32 (keys also
int64) or bool; they have an entry for each tile and broadcast.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np

_MOST = (1 << 31) - 8  # positions are evaluated in 32 bits, in which larger numbers wrap around
_ALL, _NONE, _AHEAD, _BEHIND, _ELSEWHERE = range(_MOST, _MOST + 5)  # in keys, as no number of the formula
_ENTRIES = 1 << 23  # of a table, looked at for one gather; of more nothing is known
_BITS = 62  # entries of a window that make one key


class Unbounded(TypeError):
    """The formula does something of which bounds say nothing."""


class _Opaque:
    """What neither NumPy nor torch takes apart, and Python asks for no truth value."""

    __slots__ = ()
    __array_ufunc__ = None

    def __bool__(self):
        raise Unbounded("the formula branches on positions")

    def __array__(self, *args, **kwargs):
        raise Unbounded("the formula calls NumPy with positions")

    @classmethod
    def __torch_function__(cls, *args, **kwargs):
        raise Unbounded("the formula calls torch with positions")


@dataclass(eq=False, slots=True)
class Flags(_Opaque):
    """Truth values of tiles: whether any may be true and all must be, and the keys or None."""

    may: Any
    must: Any
    keys: tuple | None = None

    def __invert__(self):
        return Flags(~self.must, ~self.may, self.keys)

    def __and__(self, other):
        if isinstance(other, bool):
            return self if other else Flags(self.may & False, self.must & False, self.keys)
        other = _of(Flags, other)
        keys = None if self.keys is None else self.keys + other.keys
        return Flags(self.may & other.may, self.must & other.must, keys)

    def __or__(self, other):
        if isinstance(other, bool):
            return Flags(self.may | True, self.must | True, self.keys) if other else self
        other = _of(Flags, other)
        keys = None if self.keys is None else self.keys + other.keys
        return Flags(self.may | other.may, self.must | other.must, keys)

    def __xor__(self, other):
        if isinstance(other, bool):
            return ~self if other else self
        return (self & ~_of(Flags, other)) | (~self & other)

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__


@dataclass(eq=False, slots=True)
class Spans(_Opaque):
    """Integers of tiles, low ≤ each ≤ high; most: no size exceeds it, whatever the tile.

    Each value is base + f, where f depends on the element's place in the tile, the tile's size and the arrays
    of ``shape`` only; base is None where keys are not requested.
    """

    low: Any
    high: Any
    most: int
    base: Any = None
    shape: tuple = ()

    def __add__(self, other):
        if isinstance(other, Integral):
            n = int(other)
            return self._with(self.low + n, self.high + n, self.most + abs(n), lambda: self.base + n)
        _of(Spans, other)
        low, high = self.low + other.low, self.high + other.high
        return self._with(
            low, high, self.most + other.most, lambda: self.base + other.base, lambda: other.shape
        )

    def __neg__(self):
        return self._with(-self.high, -self.low, self.most, lambda: -self.base)

    def __sub__(self, other):
        return self + -(other if isinstance(other, Integral) else _of(Spans, other))

    def __rsub__(self, other):
        return -self + other

    def __mul__(self, other):
        n = _whole(other)
        low, high = (self.low, self.high) if n >= 0 else (self.high, self.low)
        return self._with(low * n, high * n, self.most * abs(n), lambda: self.base * n)

    __radd__, __rmul__ = __add__, __mul__

    def __floordiv__(self, other):
        n, where = _positive(other), library(self.low).where
        low, high = self.low // n, self.high // n
        return self._with(
            low,
            high,
            self.most,
            lambda: where(low == high, low, self.base // n),
            lambda: (where(low == high, _AHEAD, self.base % n),),
        )

    def __mod__(self, other):
        n, where = _positive(other), library(self.low).where
        begin = self.low // n * n
        inside = self.high < begin + n
        return self._with(
            where(inside, self.low - begin, 0),
            where(inside, self.high - begin, n - 1),
            n,
            lambda: where(inside, self.base - begin, 0),
            lambda: (where(inside, _AHEAD, self.base % n),),
        )

    def __rshift__(self, other):
        n = _whole(other)
        return self // (1 << n) if 0 <= n < 32 else _refuse(f">> {n}")

    def __and__(self, other):
        n = _whole(other) + 1
        return self % n if n > 0 and n & (n - 1) == 0 else _refuse(f"& {n - 1}, which is not 2^n − 1")

    __rand__ = __and__

    def __abs__(self):
        xp = library(self.low)

        def base():
            return xp.where(self.low >= 0, self.base, xp.where(self.high < 0, -self.base, 0))

        def more():
            return (xp.where(self.low >= 0, _AHEAD, xp.where(self.high < 0, _BEHIND, self.base)),)

        least, most = xp.maximum(self.low, -self.high).clip(min=0), xp.maximum(-self.low, self.high)
        return self._with(least, most, self.most, base, more)

    def __le__(self, other):
        return self._compared(other, lambda d: (d.low <= 0, d.high <= 0))

    def __lt__(self, other):
        return self._compared(other, lambda d: (d.low < 0, d.high < 0))

    def __ge__(self, other):
        return self._compared(other, lambda d: (d.high >= 0, d.low >= 0))

    def __gt__(self, other):
        return self._compared(other, lambda d: (d.high > 0, d.low > 0))

    def __eq__(self, other):
        return self._compared(other, lambda d: ((d.low <= 0) & (d.high >= 0), (d.low == 0) & (d.high == 0)))

    def __ne__(self, other):
        return ~(self == other)

    __hash__ = None

    def _compared(self, other, truth: Callable) -> Flags:
        difference = self * 0 if other is self else self - other
        may, must = truth(difference)
        if self.base is None:
            return Flags(may, must)
        where, unclear = library(may).where, may & ~must
        first = where(unclear, difference.base, where(must, _ALL, _NONE))
        return Flags(may, must, (first, *(where(unclear, each, 0) for each in difference.shape)))

    def _with(self, low, high, most: int, base: Callable, more: Callable = tuple) -> Spans:
        """Of these bounds; base and what the shape has more are made only where keys are requested."""
        if most >= _MOST:
            _refuse("numbers beyond 32 bits")
        if self.base is None:
            return Spans(low, high, most)
        return Spans(low, high, most, base(), self.shape + more())


class Table(_Opaque):
    """A mask's array of bools or integers; indexed by Spans it gives Flags or Spans."""

    __slots__ = ("_array", "_ends", "_truth", "ndim", "shape")

    def __init__(self, array, ends: tuple[int, int]):
        """ends: least and greatest entry."""
        self._truth, self._ends = str(array.dtype).endswith("bool"), ends
        self._array, self.ndim, self.shape = array, array.ndim, tuple(array.shape)

    def __getitem__(self, at):
        at = at if isinstance(at, tuple) else (at,)
        spans = [each for each in at if isinstance(each, Spans)]
        if len(at) != self.ndim or not spans or not all(isinstance(i, (Spans, Integral)) for i in at):
            _refuse("a table indexed by something else than one position per dimension")
        xp, sizes = library(spans[0].low), [size for i, size in zip(at, self.shape) if isinstance(i, Spans)]
        beyond = [(i.low < 0) | (i.high >= size) for i, size in zip(spans, sizes)]
        ends = [(i.low.clip(0, size - 1), i.high.clip(0, size - 1)) for i, size in zip(spans, sizes)]
        unknown = sum(beyond[1:], beyond[0])
        entries = self._entries(xp, at, ends, unknown)
        if entries is None:
            unknown = unknown | True
            entries = xp.broadcast_to(self._array.reshape(-1)[:1], (*unknown.shape, 1))
        low = high = entries[..., 0]
        if entries.shape[-1] > 1:
            low, high = xp.amin(entries, -1), xp.amax(entries, -1)
        low, high = xp.where(unknown, self._ends[0], low), xp.where(unknown, self._ends[1], high)
        most = max(map(abs, self._ends))
        if spans[0].base is None:
            return Flags(high > 0, low > 0) if self._truth else Spans(low, high, most)
        alike = (low == high) & ~unknown
        held, located = xp.where(alike, low, 0), ~alike
        if self._truth and entries.shape[-1] <= _BITS:
            weights = xp.asarray([1 << bit for bit in range(entries.shape[-1])], **_where(entries))
            held, located = xp.where(unknown, 0, (entries * weights).sum(-1)), unknown
        spread = tuple(xp.where(alike, 0, each) for i in spans for each in (i.base - i.low, *i.shape))
        place = tuple(xp.where(located, each, _ELSEWHERE) for i in spans for each in (i.low, i.high))
        if self._truth:
            return Flags(high > 0, low > 0, (held, *spread, *place))
        return Spans(low, high, most, held, spread + place)

    def _entries(self, xp, at, ends, tiles):
        """(tiles …, entries of each one's window), a narrower window's last entry repeated; None where these
        are too many."""
        widths = [int((high - low).max()) + 1 for low, high in ends]
        if math.prod(tiles.shape) * math.prod(widths) > _ENTRIES:
            return None
        index, place = [], (..., *(None,) * len(widths))
        for number, ((low, high), width) in enumerate(zip(ends, widths)):
            each = low[place]
            if width > 1:
                step = xp.arange(width, **_where(low)).reshape(-1, *(1,) * (len(widths) - 1 - number))
                each = xp.minimum(each + step, high[place])
            index.append(each)
        index = iter(index)
        found = self._array[tuple(next(index) if isinstance(i, Spans) else int(i) for i in at)]
        return found.reshape(*tiles.shape, -1)


def _of(kind: type, other):
    return other if isinstance(other, kind) else _refuse(f"{kind.__name__} and {type(other).__name__}")


def _whole(n) -> int:
    return int(n) if isinstance(n, Integral) else _refuse(f"positions and {type(n).__name__}")


def _positive(n) -> int:
    return _whole(n) if _whole(n) > 0 else _refuse(f"a division by {n}")


def _refuse(what: str):
    raise Unbounded(f"bounds say nothing of {what}")


def library(array):
    """torch or NumPy, whose array this is."""
    return np if isinstance(array, np.ndarray) else sys.modules["torch"]


def _where(array) -> dict:
    """What puts a new array to where this one is."""
    return {} if isinstance(array, np.ndarray) else {"device": array.device}
