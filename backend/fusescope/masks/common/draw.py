"""Draws that are the same on every platform and library: splitmix64 of a cell's number, in integer arithmetic
only."""

from __future__ import annotations

import numpy as np

from fusescope.masks.common.defaults import positions

_GAMMA, _MIX_1, _MIX_2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_TOP = 1 << 63
SEED = positions("seed", 0, "seed of the draws", high=(1 << 24) - 1, typical=(0, 1, 2, 3))
"""Seeds have 24 bits: with 20 bits of row and of column they fill the 64 bits of a cell's number."""


def splitmix64(x):
    """The first output of the splitmix64 generator (Steele, Lea and Flood 2014; Vigna's constants) at state
    x.

    x: NumPy integers, taken modulo 2^64, giving uint64; or a torch int64 tensor, giving the same 64 bits as a
    signed int64, because torch has no arithmetic on uint64.
    """
    if hasattr(x, "long"):
        x = x.long() + _signed(_GAMMA)
        x = (x ^ _shifted(x, 30)) * _signed(_MIX_1)
        x = (x ^ _shifted(x, 27)) * _signed(_MIX_2)
        return x ^ _shifted(x, 31)
    x = np.asarray(x).astype(
        np.uint64
    )  # a copy; in place from here on, since a large mask draws hundreds of millions
    x += np.uint64(_GAMMA)  # arrays wrap
    shifted = np.empty_like(x)
    for shift, factor in ((30, _MIX_1), (27, _MIX_2), (31, None)):
        np.right_shift(x, np.uint64(shift), out=shifted)
        x ^= shifted
        if factor is not None:
            x *= np.uint64(factor)
    return x


def score(seed: int, row, column):
    """splitmix64(seed·2^40 + row·2^20 + column), as splitmix64 gives it; rows may be negative (they count
    modulo 2^64)."""
    if hasattr(row, "long"):
        return splitmix64(row.long() * (1 << 20) + column.long() + _signed(seed << 40))
    row = np.asarray(row).astype(np.int64) * (1 << 20) + _signed(seed << 40)
    return splitmix64(row.astype(np.uint64) + np.asarray(column).astype(np.uint64))


def below(score, density: float):
    """score / 2^64 < density, exactly: the scores are compared as integers with the density scaled by
    2^64."""
    numerator, denominator = float(density).as_integer_ratio()
    limit = -(-(numerator << 64) // denominator)
    if limit > 2**64 - 1:
        return score == score
    if hasattr(score, "long"):
        return (
            score ^ -_TOP
        ) < limit - _TOP  # flipping the top bit turns the order of unsigned numbers into that of signed ones
    return score < np.uint64(limit)


def _shifted(x, bits: int):
    """Logical right shift of a signed tensor: the copies of the sign bit are masked away."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _signed(x: int) -> int:
    x &= (1 << 64) - 1
    return x - (1 << 64) if x >= _TOP else x
