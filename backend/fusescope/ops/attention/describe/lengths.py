"""How long the sequences of a case are: all as long as the longest, drawn, or listed. No torch."""

from __future__ import annotations

import math

from fusescope.core.schema import Parameter
from fusescope.ops.attention.describe.cases import TOLERANCE
from fusescope.ops.base import Tolerance

HELP = (
    "lengths of the sequences: full (equal, all the longest), drawn (unequal, evenly spread from 0.2 to 1 "
    "of it, mean 0.6), or listed: 3+0+9"
)


def of(text: str, count: int, longest: int) -> tuple[int, ...]:
    """The lengths that a text means, one per sequence.

    "drawn" is the same for the same sizes: evenly spaced lengths, the longest among them, in an order
    shuffled by a fixed rule. With one sequence there is nothing to spread, and it is the longest. Raises
    ValueError for what is none of the three forms, another number of lengths than ``count``, and lengths
    outside 0 to ``longest``.
    """
    if text == "full":
        return (longest,) * count
    if text == "drawn":
        spread = (
            [longest - (longest * 4 * i) // (5 * (count - 1)) for i in range(count)]
            if count > 1
            else [longest]
        )
        return tuple(n for _, n in sorted((_mixed(i), n) for i, n in enumerate(spread)))
    try:
        given = tuple(int(part) for part in str(text).split("+"))
    except ValueError:
        raise ValueError(f"lengths must be full, drawn, or integers joined by +, not {text!r}") from None
    if len(given) != count:
        raise ValueError(f"lengths lists one length for each of {count} sequences, not {len(given)}")
    return Parameter("lengths", "ints", low=0, high=longest).check(given)


def tolerance(fewest: int, dtype: str) -> Tolerance:
    """The allowed error of attention without a mask where a row has at least ``fewest`` live keys (see
    cases.tolerance)."""
    most = TOLERANCE[dtype]
    size = min(1.0, math.sqrt(math.e / max(fewest, 1)))
    return Tolerance(
        most.absolute * size,
        most.relative,
        f"{most.reason.split(';')[0]}; rows with at least {fewest} keys",
    )


def _mixed(i: int) -> int:
    """splitmix64 of i: an order that is the same everywhere."""
    mask = (1 << 64) - 1
    z = (i + 1) * 0x9E3779B97F4A7C15 & mask
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & mask
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & mask
    return z ^ (z >> 31)
