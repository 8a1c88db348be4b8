"""Numbers as people write sizes: 16384, 16k, 2**14, 1e6."""

from __future__ import annotations

import re
from fractions import Fraction

EXAMPLES = "16k, 2**14 and 1e6"
"""Ways to write a size, as a sentence lists them."""
_UNITS = {"": 1, "k": 1 << 10, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_SCALED = re.compile(r"([+-]?\d{1,20}(?:\.\d{1,20})?)(?:e([+-]?\d{1,2}))?([kKMG]?)", re.ASCII | re.IGNORECASE)
_POWER = re.compile(r"(\d{1,6})(?:\*\*|\^)(\d{1,2})", re.ASCII)


def whole(text: str) -> int:
    """An integer: digits, a multiple of k, M or G (powers of 1024), a power, or with a decimal exponent;
    ValueError for any other text."""
    try:
        return int(text)
    except ValueError:
        number = _exact(text)
    if number.denominator != 1:
        raise ValueError(f"{text!r} is not a whole number")
    return number.numerator


def real(text: str) -> float:
    """A number, written so or as any other; ValueError for any other text."""
    try:
        return float(text)
    except ValueError:
        return float(_exact(text))


def _exact(text: str) -> Fraction:
    if found := _POWER.fullmatch(text.replace(" ", "")):
        return Fraction(int(found[1]) ** int(found[2]))
    found = _SCALED.fullmatch(text)
    if not found or found[3] not in _UNITS:  # an m may be a thousandth
        raise ValueError(f"{text!r} is not a number")
    return Fraction(found[1]) * Fraction(10) ** int(found[2] or 0) * _UNITS[found[3]]
