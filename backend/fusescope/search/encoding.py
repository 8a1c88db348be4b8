"""A fusion scheme as 16 bits: bit 0 = the hand-written attention is used, bits 1-15 = operators 0-14 of the
layer.

A code is written with bit 0 first: "0001101010101010" has the value 6826. Neighbours among the operators with
equal bits form one fused segment, so what counts is where neighbours differ, and a code and its complement in
bits 1-15 are the same scheme.

The hand-written attention is one kernel for operators 2-7 (head split to head merge), which nothing else can
be fused into: with bit 0 set their six bits say nothing, and the layer is always cut before operator 2 and
after operator 7. So there are 2^14 schemes without the attention (14 places to cut), and 2^(1 + 6) with it
(one place before it, six after).

``translate`` and ``segments`` speak of the bits as they are given; ``boundaries``, ``parts`` and
``canonical`` of the scheme. Everywhere a code is text (16 characters of 0 and 1, or a decimal value) or a
whole number.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from itertools import pairwise

BITS = 16
OPERATORS = BITS - 1
ATTENTION = range(2, 8)
"""The operators that the hand-written attention covers."""

DEFAULT_RANGES = {True: range(32768, 49152), False: range(16384, 24576)}
"""The values traversed by default with the hand-written attention and without (there operators 0 and 1 stay
apart)."""

RULE = "a code is exactly 16 characters of 0 and 1, or a decimal value from 0 to 65535"

_RUN = re.compile("00+|11+")
_OPERATOR_BITS = (1 << OPERATORS) - 1


def value(code: str | int) -> int:
    """The code as a whole number from 0 to 65535, bit 0 being the most significant.

    ValueError with the rule for text of another length, other characters or a value out of range; TypeError
    for what is neither text nor a whole number. A decimal value has no leading zeros: "0011" is taken for
    bits of the wrong length, not for eleven.
    """
    if isinstance(code, str):
        return _value_of(code)
    try:
        if isinstance(code, bool):
            raise TypeError
        return _bounded(operator.index(code))
    except TypeError:
        raise TypeError(f"{RULE}, not {type(code).__name__}") from None


# A sweep asks for the values of its 16,512 codes again and again: at each prediction, list and chart.
@lru_cache(maxsize=1 << BITS)
def _value_of(code: str) -> int:
    if re.fullmatch("[01]{16}", code):
        return int(code, 2)
    if not re.fullmatch("0|[1-9][0-9]{0,4}", code):
        length = f" ({len(code)} characters)" if re.fullmatch("[01]*", code) else ""
        raise ValueError(f"{RULE}, not {code[:40]!r}{length}")
    return _bounded(int(code))


def _bounded(number: int) -> int:
    if not 0 <= number < 1 << BITS:
        raise ValueError(f"{RULE}, not {number}")
    return number


def is_code(name: str) -> bool:
    """Whether an implementation's name is the code of a scheme, and not that of a baseline."""
    return bool(re.fullmatch("[01]{16}", name))


def bits(code: str | int) -> str:
    """The code as 16 characters of 0 and 1; errors as of ``value``."""
    return f"{value(code):016b}"


def attention(code: str | int) -> bool:
    """Whether bit 0 asks for the hand-written attention."""
    return bits(code)[0] == "1"


def segments(code: str | int) -> list[tuple[int, int]]:
    """(start, end) of each run of two or more equal bits among positions 1-15, both ends counted in; [(1, 2),
    (3, 4)]."""
    return [(m.start(), m.end() - 1) for m in _RUN.finditer(bits(code), 1)]


def translate(code: str | int) -> str:
    """ "value bit0 segment_count start end …" over positions 1-15: "0001101010101010" gives "6826 0 2 1 2 3
    4"."""
    found = segments(code)
    return " ".join(
        map(str, [value(code), int(attention(code)), len(found), *(place for run in found for place in run)])
    )


def complement(code: str | int) -> str:
    """The same scheme written the other way: bits 1-15 inverted, bit 0 kept; 16 characters."""
    return bits(value(code) ^ _OPERATOR_BITS)


def boundaries(code: str | int) -> tuple[int, ...]:
    """The operators after which the layer is cut, each from 0 to 13, ascending; around the hand-written
    attention, never in it."""
    text = bits(code)[1:]
    cuts = {i for i in range(OPERATORS - 1) if text[i] != text[i + 1]}
    if attention(code):
        cuts = cuts - set(ATTENTION) | {ATTENTION.start - 1, ATTENTION.stop - 1}
    return tuple(sorted(cuts))


def parts(code: str | int) -> list[range]:
    """The operators of each part of the layer in order, single ones included; the hand-written attention is
    range(2, 8)."""
    cuts = (-1, *boundaries(code), OPERATORS - 1)
    return [range(a + 1, b + 1) for a, b in pairwise(cuts)]


def encode(with_attention: bool, cuts: Iterable[int]) -> str:
    """The canonical code of the scheme cut after these operators; what ``boundaries`` undoes.

    ValueError for a cut outside 0-13, and with the attention for a cut in it or none at its ends.
    """
    cuts = set(cuts)
    if not cuts <= set(range(OPERATORS - 1)):
        raise ValueError(f"the layer is cut after operators 0 to {OPERATORS - 2}, not after {sorted(cuts)}")
    first, last = ATTENTION.start - 1, ATTENTION.stop - 1
    if with_attention and cuts & set(range(first, last + 1)) != {first, last}:
        raise ValueError(
            f"with the hand-written attention the layer is cut after operators {first} and {last} and "
            f"nowhere between, not {sorted(cuts)}"
        )
    text = "10" if with_attention else "01"
    for i in range(OPERATORS - 1):
        text += "10"[int(text[-1])] if i in cuts else text[-1]
    return text


def canonical(code: str | int) -> str:
    """The one code, of all that mean the same scheme, under which it is stored; 16 characters.

    Bit 1 is the opposite of bit 0, which is where the default ranges lie. With bit 0 set, the bits of
    operators 2-7 are equal, and differ from those next to them, so that ``segments`` shows the attention as
    the run 3-8 that it is.
    """
    return _canonical(value(code))


@lru_cache(maxsize=1 << BITS)
def _canonical(number: int) -> str:
    text = bits(number)
    if text[0] == "1":
        return _attended(text[1 : ATTENTION.start + 1], text[ATTENTION.stop + 1 :])
    return text if text[1] == "1" else complement(number)


@cache
def _attended(before: str, after: str) -> str:
    """The canonical code with the hand-written attention and these bits of the operators around it."""
    code = f"1{before}{'0' * len(ATTENTION)}{after}"
    return encode(True, boundaries(code))


def schemes(with_attention: bool) -> Iterator[str]:
    """The canonical codes of all distinct schemes, ascending by value: 128 with the hand-written attention,
    16384 without."""
    first = DEFAULT_RANGES[with_attention].start
    return (c for c in map(bits, range(first, first + (1 << OPERATORS - 1))) if canonical(c) == c)


def distinct(codes: Iterable[str | int]) -> list[str]:
    """The canonical codes of the given ones, each once, in the order of their first appearance: what of a
    range needs a run."""
    return list(dict.fromkeys(map(canonical, codes)))
