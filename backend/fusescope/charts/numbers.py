"""Numbers for people: three significant digits, thousands with a comma, one unit per column, and "n/a" for
the unknown."""

from __future__ import annotations

import math
from collections.abc import Iterable

NA = "n/a"
_TIME_UNITS = ((1.0, "µs", 1e3), (1e3, "ms", 1.0), (math.inf, "s", 1e-3))
_BYTE_UNITS = (
    (1 << 10, "B", 1),
    (1 << 20, "KiB", 1 << 10),
    (1 << 30, "MiB", 1 << 20),
    (math.inf, "GiB", 1 << 30),
)


def three(value: float | None) -> str:
    """Three significant digits without a needless exponent: 0.0123, 1.23, 123, 12,300, 2,090,000, 1.23e-07
    and 1.23e+09; "n/a" for None and NaN."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return NA
    if value == 0 or math.isinf(value):
        return f"{value:g}".replace("inf", "∞")
    exponent = math.floor(math.log10(abs(value)))
    rounded = round(value, 2 - exponent)
    exponent = math.floor(math.log10(abs(rounded)))
    if exponent < -4 or exponent > 8:
        return f"{rounded:.2e}"
    return f"{rounded:,.{max(0, 2 - exponent)}f}"


def brief(value: float) -> str:
    """The same in at most four characters from 0.1 to 999, for a narrow cell: 0.95, 1.28, 10.4."""
    return f"{value:.2f}" if 0.1 <= value < 1 else three(value)


def round3(value: float | None) -> float | None:
    """The number rounded to three significant digits, None for None and NaN: what a numeric column of a table
    holds."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    return float(f"{value:.3g}")


def time_unit(milliseconds: Iterable[float | None]) -> tuple[str, float]:
    """The unit (µs, ms or s) that suits a whole column of times in ms, and the factor to it from ms."""
    known = [v for v in milliseconds if v and v > 0]
    # The geometric middle decides: a column of 0.9 ms and 40 ms reads best in ms, one of 3 µs and 300 µs in
    # µs.
    middle = math.exp(sum(map(math.log, known)) / len(known)) if known else 1.0
    _, unit, factor = next(u for u in _TIME_UNITS if middle < u[0])
    return unit, factor


def time(milliseconds: float | None) -> str:
    """One time with its own unit: "12.3 µs"."""
    if milliseconds is None:
        return NA
    unit, factor = time_unit([milliseconds])
    return f"{three(milliseconds * factor)} {unit}"


def seconds(value: float | None) -> str:
    """A duration for people: "0.4 s", "40 s", "3 min 20 s", "2 h 5 min"; "n/a" for None."""
    if value is None:
        return NA
    if value < 10:
        return f"{value:.1f} s"
    whole = round(value)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        minutes, rest = divmod(whole, 60)
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, rest = divmod(whole, 3600)
    return f"{hours} h {rest // 60} min"


def rough_seconds(value: float) -> str:
    """An expected duration with no more digits than it deserves: "4 s", "25 s", "3 min"."""
    if value < 10:
        return f"{max(1, round(value))} s"
    if value < 120:
        return f"{5 * round(value / 5)} s"
    return seconds(60 * round(value / 60))


def size(count: int | float | None) -> str:
    """A number of bytes in binary units: "228 KiB"."""
    if count is None:
        return NA
    _, unit, divisor = next(u for u in _BYTE_UNITS if count < u[0])
    return f"{three(count / divisor) if unit != 'B' else int(count)} {unit}"


def ratio(value: float | None) -> str:
    """A speed-up: "1.84×"."""
    return NA if value is None else f"{three(value)}×"


def faster(speedup: float | None) -> str:
    """ "1.84× faster", "10.3× slower"; "n/a" for None or 0."""
    if not speedup:
        return NA
    return f"{ratio(max(speedup, 1 / speedup))} {'faster' if speedup >= 1 else 'slower'}"


def percent(value: float | None) -> str:
    """A share 0 … 1 as "37.5 %"."""
    return NA if value is None else f"{three(100 * value)} %"


def plural(count: int, noun: str) -> str:
    """ "1 case", "12 cases"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
