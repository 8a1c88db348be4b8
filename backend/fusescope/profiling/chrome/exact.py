"""Microseconds as traces write them, in exact whole nanoseconds.

A float64 keeps three decimals of a microsecond up to 2^43 µs (102 days): traces with a base time stay below
it, those with absolute times (1.7e15 µs) do not, and their numbers are taken from the text. Whole µs and the
rest are converted apart: the product of such a number and 1000 would be rounded, up to a ns off.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

import numpy as np

LOSSY_FROM = float(1 << 43)
_LIMIT = 1 << 62
BEYOND = int(np.iinfo(np.int64).min) + 1
"""Stands in columns for a time that no int64 holds, or one beyond ±146 years."""


def nanoseconds(value) -> int | None:
    """One time in µs (int, float, Decimal, text, bytes of text) in ns; None where it is no number. A half ns
    goes to even."""
    if type(value) is int:
        return value * 1000
    if type(value) is float:
        if not abs(value) < LOSSY_FROM:
            return _decimal(repr(value))
        whole = int(value)
        return whole * 1000 + round((value - whole) * 1000)
    if isinstance(value, Decimal):
        return (
            int((value * 1000).to_integral_value()) if value.is_finite() and value.adjusted() < 100 else None
        )
    if isinstance(value, str | bytes):
        return _decimal(value.decode(errors="replace") if isinstance(value, bytes) else value)
    return None


def column(values: list, absent: int) -> tuple[np.ndarray, bool]:
    """(int64 ns of a column of µs, whether one of the numbers is a float too large to hold its nanoseconds).

    ``absent`` marks what is no number, BEYOND what is out of range.
    """
    kinds = set(map(type, values))
    if float in kinds and kinds <= {float, type(None)}:
        numbers = np.array(values, float)  # None becomes NaN
        if not (np.abs(numbers) >= LOSSY_FROM).any():
            lacks = np.isnan(numbers)
            numbers[lacks] = 0.0
            whole = np.trunc(numbers)
            found = whole.astype(np.int64) * 1000 + np.rint((numbers - whole) * 1000.0).astype(np.int64)
            found[lacks] = absent
            return found, False
    elif kinds == {int} and max(values) < 1 << 52 and min(values) > -(1 << 52):
        return np.array(values, np.int64) * 1000, False
    found = np.empty(len(values), np.int64)
    for row, value in enumerate(values):
        ns = nanoseconds(value)
        found[row] = absent if ns is None else ns if -_LIMIT < ns < _LIMIT else BEYOND
    return found, any(type(v) is float and not -LOSSY_FROM < v < LOSSY_FROM for v in values)


def _decimal(text: str) -> int | None:
    whole, point, fraction = text.partition(".")
    if len(fraction) <= 3 and (fraction.isdigit() or not point) and whole.lstrip("-").isdigit():
        ns = int(whole.lstrip("-")) * 1000 + int((fraction + "000")[:3])
        return -ns if whole.startswith("-") else ns
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    return (
        int((number * 1000).to_integral_value()) if number.is_finite() and number.adjusted() < 100 else None
    )
