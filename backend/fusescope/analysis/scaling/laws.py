"""The laws of Amdahl and Gustafson fitted to measured speed-ups: the serial share with its interval.

Amdahl (1967), the same work on N devices: S(N) = 1 / (s + (1 − s)/N).
Gustafson (1988), N times the work on N devices: S(N) = s + (1 − s) N.
Both are linear in s once rearranged; s is its least-squares value, and the interval Student's t over the
residuals. A serial share above 1 says that more devices were slower.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass

LAWS = ("amdahl", "gustafson")
ENOUGH = 3
"""Points beyond one device at which an interval says something; fewer are shown with what is missing."""
_STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""97.5 % points of Student's t for 1 … 10 degrees of freedom."""


@dataclass(frozen=True)
class Point:
    """A measured speed-up on N devices, what the fit gives there, and measured − fitted."""

    ranks: int
    speedup: float
    fitted: float
    residual: float


@dataclass(frozen=True)
class Fit:
    """serial: share s, low and high its 95 % interval (None where the points do not say); note: what is
    missing for a fit, None where nothing is."""

    law: str
    serial: float | None
    low: float | None
    high: float | None
    points: tuple[Point, ...]
    note: str | None = None

    def speedup(self, ranks: int) -> float | None:
        """What the fit gives for so many devices."""
        return None if self.serial is None else _speedup(self.law, self.serial, ranks)

    def to_json(self) -> dict:
        return asdict(self)


def fit(law: str, speedups: Iterable[tuple[int, float]]) -> Fit:
    """Of (devices, speed-up over one device; for Gustafson scaled by the work). Those of one device say
    nothing. ValueError for another law and for what is not positive."""
    if law not in LAWS:
        raise ValueError(f"laws are {' and '.join(LAWS)}, not {law!r}")
    known = sorted((n, s) for n, s in speedups if n > 1)
    if not all(math.isfinite(s) and s > 0 for _, s in known):
        raise ValueError("speed-ups are positive numbers")
    if not known:
        return Fit(law, None, None, None, (), "no time on more than one device")
    if law == "amdahl":
        pairs = [(1 - 1 / n, 1 / s - 1 / n) for n, s in known]
    else:
        pairs = [(n - 1.0, n - s) for n, s in known]
    power = sum(x * x for x, _ in pairs)
    serial = sum(x * y for x, y in pairs) / power
    points = tuple(Point(n, s, g := _speedup(law, serial, n), s - g) for n, s in known)
    count, sizes = len(known), len({n for n, _ in known})
    low = high = None
    if count >= 2:
        freedom = count - 1
        spread = sum((y - serial * x) ** 2 for x, y in pairs) / freedom
        student = _STUDENT[min(freedom, len(_STUDENT)) - 1]
        half = student * math.sqrt(spread / power)
        low, high = serial - half, serial + half
    note = None
    if sizes < ENOUGH:
        note = (
            f"{sizes} count{'' if sizes == 1 else 's'} of devices beyond one: too few to tell whether the "
            f"law holds ({ENOUGH} or more)"
        )
    return Fit(law, serial, low, high, points, note)


def _speedup(law: str, serial: float, ranks: int) -> float:
    if law == "amdahl":
        below = serial + (1 - serial) / ranks
        return 1 / below if below > 0 else math.inf
    return serial + (1 - serial) * ranks
