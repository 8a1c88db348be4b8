"""The α–β model of a collective: a latency for each step and a bandwidth, fitted to measured times.

Over n ranks in a ring a tensor of S bytes takes
    all-reduce   c + 2 (n − 1) α + 2 (n − 1)/n S/β
    all-gather   c +   (n − 1) α +   (n − 1)/n S/β   (S: the gathered tensor)
    send/recv                  α +             S/β
(Thakur, Rabenseifner and Gropp 2005; the bandwidth terms are nccl-tests' bus bandwidth.) c, what a call takes
however many ranks there are, can be told from α where two numbers of ranks were measured; else it is 0.
NCCL changes its protocol with the size, so a line through all sizes is off in their middle: at and between
measured sizes the model is scaled to what was measured there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

COLLECTIVES = ("all_reduce", "all_gather", "send_recv")


@dataclass(frozen=True)
class Link:
    """One collective: seconds per step, bytes per second, the largest relative error of the fit over its
    points, how many points and ranks it comes from, and seconds per call."""

    collective: str
    alpha_s: float
    beta_bytes_per_s: float
    worst: float
    points: int
    ranks: int
    call_s: float = 0.0
    scale: tuple[tuple[int, float, float], ...] = ()
    """(ranks, bytes, measured over fitted) at the measured sizes; none: the fit alone."""

    def seconds(self, ranks: int, size: float) -> float:
        """Of one call on a tensor of ``size`` bytes over so many ranks; 0 for one rank."""
        if ranks < 2:
            return 0.0
        steps, volume = coefficients(self.collective, ranks)
        line = self.call_s + steps * self.alpha_s + volume * size / self.beta_bytes_per_s
        return line * self._scaled(ranks, size)

    def _scaled(self, ranks: int, size: float) -> float:
        """Between measured sizes by the logarithm of the size, beyond them as at the nearest; of the measured
        number of ranks that is nearest."""
        if not self.scale:
            return 1.0
        near = min({n for n, *_ in self.scale}, key=lambda n: abs(np.log(n / ranks)))
        rows = sorted((size, ratio) for n, size, ratio in self.scale if n == near)
        return float(np.interp(np.log(size), np.log([s for s, _ in rows]), [r for _, r in rows]))

    def to_json(self) -> dict:
        return {name: value for name, value in asdict(self).items() if name != "scale"}


def coefficients(collective: str, ranks: int) -> tuple[float, float]:
    """(steps, share of the bytes that passes a link) of a collective over so many ranks."""
    if collective == "all_reduce":
        return 2.0 * (ranks - 1), 2.0 * (ranks - 1) / ranks
    if collective == "all_gather":
        return ranks - 1.0, (ranks - 1) / ranks
    if collective == "send_recv":
        return 1.0, 1.0
    raise ValueError(f"collectives are {', '.join(COLLECTIVES)}, not {collective!r}")


def fit(collective: str, points: Sequence[tuple[int, float, float]]) -> Link:
    """Of (ranks, bytes, seconds): least squares of the relative errors, neither part negative. ValueError for
    fewer than two sizes."""
    if len({size for _, size, _ in points}) < 2:
        raise ValueError(f"latency and bandwidth of {collective} need times of two sizes or more")
    rows = np.array([coefficients(collective, n) for n, _, _ in points])
    sizes = np.array([size for _, size, _ in points], dtype=float)
    times = np.array([seconds for *_, seconds in points], dtype=float)
    if not (np.all(times > 0) and np.all(sizes > 0)):
        raise ValueError("sizes and times of a collective are positive numbers")
    parts = [rows[:, 0], rows[:, 1] * sizes]
    if len({steps for steps, _ in rows}) > 1:
        parts.append(np.ones(len(times)))
    columns = np.stack(parts, axis=1) / times[:, None]
    found = least(columns, np.ones(len(times)))
    found[:2] = np.maximum(found[:2], (1e-9, 1e-15))  # as small as the times could have shown them
    worst = float(np.max(np.abs(columns @ found - 1)))
    alpha, per_byte, call = (*map(float, found), 0.0)[:3]
    return Link(collective, alpha, 1 / per_byte, worst, len(points), max(n for n, *_ in points), call)


def given(latency_s: float, bytes_per_s: float) -> dict[str, Link]:
    """Every collective with the same latency and bandwidth: what a data sheet says, without points."""
    return {c: Link(c, latency_s, bytes_per_s, 0.0, 0, 0) for c in COLLECTIVES}


def of_json(data: Iterable[Mapping], points: Iterable[Mapping] = ()) -> dict[str, Link]:
    """The links that ``to_json`` wrote, scaled to the measured ``points`` ({"collective", "ranks", "bytes",
    "ms"}); ValueError for what is no such thing."""
    found, names = {}, [name for name in Link.__dataclass_fields__ if name not in ("call_s", "scale")]
    measured = [_point(p) for p in points]
    for entry in data:
        try:
            link = Link(**{name: entry[name] for name in names}, call_s=entry.get("call_s", 0.0))
            coefficients(link.collective, 2)
            good = link.alpha_s >= 0 and link.call_s >= 0 and link.beta_bytes_per_s > 0
        except (KeyError, TypeError) as error:
            raise ValueError(f"a run's link is not readable: {error}") from None
        if not good:
            raise ValueError("a link has a latency of at least 0 and a bandwidth above 0")
        own = [about for collective, *about in measured if collective == link.collective]
        scale = tuple((n, size, seconds / link.seconds(n, size)) for n, size, seconds in own)
        found[link.collective] = replace(link, scale=scale)
    return found


def _point(data: Mapping) -> tuple[str, int, float, float]:
    """(collective, ranks, bytes, seconds)"""
    try:
        found = str(data["collective"]), int(data["ranks"]), float(data["bytes"]), float(data["ms"]) / 1e3
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"a run's time of a collective is not readable: {error}") from None
    if found[1] < 2 or not all(math.isfinite(x) and x > 0 for x in found[2:]):
        raise ValueError("sizes and times of a collective over two ranks or more are positive numbers")
    return found


def least(columns: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Non-negative least squares of a few columns: the best of all subsets whose solution has no negative
    part."""
    count = columns.shape[1]
    best, best_error = np.zeros(count), float(target @ target)
    for subset in range(1, 1 << count):
        chosen = [c for c in range(count) if subset >> c & 1]
        solution, *_ = np.linalg.lstsq(columns[:, chosen], target, rcond=None)
        rest = target - columns[:, chosen] @ solution
        if np.all(solution >= 0) and float(rest @ rest) < best_error:
            best, best_error = np.zeros(count), float(rest @ rest)
            best[chosen] = solution
    return best
