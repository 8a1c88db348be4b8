"""The α–β model of a collective: a latency for each step and a bandwidth, fitted to measured times.

Over n ranks in a ring a tensor of S bytes takes
    all-reduce   2 (n − 1) α + 2 (n − 1)/n S/β
    all-gather     (n − 1) α +   (n − 1)/n S/β   (S: the gathered tensor)
    send/recv              α +             S/β
(Thakur, Rabenseifner and Gropp 2005; the bandwidth terms are nccl-tests' bus bandwidth.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

COLLECTIVES = ("all_reduce", "all_gather", "send_recv")


@dataclass(frozen=True)
class Link:
    """One collective: seconds per step, bytes per second, the largest relative error of the fit over its
    points, and how many points and ranks it comes from."""

    collective: str
    alpha_s: float
    beta_bytes_per_s: float
    worst: float
    points: int
    ranks: int

    def seconds(self, ranks: int, size: float) -> float:
        """Of one call on a tensor of ``size`` bytes over so many ranks; 0 for one rank."""
        if ranks < 2:
            return 0.0
        steps, volume = coefficients(self.collective, ranks)
        return steps * self.alpha_s + volume * size / self.beta_bytes_per_s

    def to_json(self) -> dict:
        return asdict(self)


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
    columns = np.stack([rows[:, 0], rows[:, 1] * sizes], axis=1) / times[:, None]
    found = least(columns, np.ones(len(times)))
    # a part that the times do not show is as small as they could have shown it
    alpha = max(float(found[0]), 1e-9)
    per_byte = max(float(found[1]), 1e-15)
    worst = float(np.max(np.abs(columns @ np.array([alpha, per_byte]) - 1)))
    return Link(collective, alpha, 1 / per_byte, worst, len(points), max(n for n, *_ in points))


def given(latency_s: float, bytes_per_s: float) -> dict[str, Link]:
    """Every collective with the same latency and bandwidth: what a data sheet says, without points."""
    return {c: Link(c, latency_s, bytes_per_s, 0.0, 0, 0) for c in COLLECTIVES}


def of_json(data: Iterable[Mapping]) -> dict[str, Link]:
    """The links that ``to_json`` wrote; ValueError for what is no such thing."""
    found = {}
    for entry in data:
        try:
            link = Link(**{name: entry[name] for name in Link.__dataclass_fields__})
            coefficients(link.collective, 2)
            good = link.alpha_s >= 0 and link.beta_bytes_per_s > 0
        except (KeyError, TypeError) as error:
            raise ValueError(f"a run's link is not readable: {error}") from None
        if not good:
            raise ValueError("a link has a latency of at least 0 and a bandwidth above 0")
        found[link.collective] = link
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
