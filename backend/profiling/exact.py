"""Microseconds as traces write them, in exact whole nanoseconds.

A float64 keeps three decimals of a microsecond up to 2^43 µs (102 days): traces with a base time stay below it, those with
absolute times (1.7e15 µs) do not, and their numbers are taken from the text.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

import numpy as np

LOSSY_FROM = float(1 << 43)
_LIMIT = 1 << 62


def nanoseconds(value) -> int | None:
    """One time in µs (int, float, Decimal, text, bytes of text) in ns; None where it is no number. A half ns goes to even."""
    if type(value) is int:
        return value * 1000
    if type(value) is float:
        return round(value * 1000) if abs(value) < LOSSY_FROM else _decimal(repr(value))
    if isinstance(value, Decimal):
        return int((value * 1000).to_integral_value()) if value.is_finite() else None
    if isinstance(value, str | bytes):
        return _decimal(value.decode(errors="replace") if isinstance(value, bytes) else value)
    return None


def lossy(values: list) -> bool:
    """Whether any of the numbers is a float too large to hold its nanoseconds."""
    if float not in set(map(type, values)):
        return False
    return any(type(v) is float and not -LOSSY_FROM < v < LOSSY_FROM for v in values)


def column(values: list, base: int = 0, absent: int | None = None) -> np.ndarray:
    """int64 ns of a column of µs, ``base`` added. ``absent`` stands for what is no number; ValueError where that is None.

    ValueError, too, for a time beyond ±146 years.
    """
    kinds = set(map(type, values))
    if kinds == {float}:
        numbers = np.array(values)
        if np.abs(numbers).max() < LOSSY_FROM:  # False for NaN
            return np.rint(numbers * 1000.0).astype(np.int64) + base
    elif kinds == {int} and max(values) < 1 << 52 and min(values) > -(1 << 52):
        return np.array(values, np.int64) * 1000 + base
    found = []
    for value in values:
        ns = nanoseconds(value)
        if ns is None:
            if absent is None:
                raise ValueError(f"a time is a number of microseconds, not {str(value)[:60]!r}")
            found.append(absent)
            continue
        if not -_LIMIT < ns + base < _LIMIT:
            raise ValueError(f"a time of {str(value)[:60]} µs is out of range")
        found.append(ns + base)
    return np.array(found, np.int64)


def _decimal(text: str) -> int | None:
    whole, point, fraction = text.partition(".")
    if len(fraction) <= 3 and (fraction.isdigit() or not point) and whole.lstrip("-").isdigit():
        ns = int(whole.lstrip("-")) * 1000 + int((fraction + "000")[:3])
        return -ns if whole.startswith("-") else ns
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    return int((number * 1000).to_integral_value()) if number.is_finite() and number.adjusted() < 100 else None
