"""Figures in the sentences of verdicts and recommendations: three significant digits and a unit."""

from __future__ import annotations


def time(ns: float) -> str:
    """ "12.9 s", "8.91 ms", "717 µs" of a time in ns."""
    unit, divisor = ("s", 1e9) if ns >= 1e9 else ("ms", 1e6) if ns >= 1e6 else ("µs", 1e3)
    return f"{three(ns / divisor)} {unit}"


def percent(share: float) -> str:
    """ "37.5 %" of a share 0 … 1."""
    return f"{100 * share:.3g} %"


def three(value: float) -> str:
    """Three significant digits, without an exponent from a thousand on."""
    return f"{float(f'{value:.3g}'):,.0f}" if abs(value) >= 999.5 else f"{value:.3g}"
