"""The time of a rank's arithmetic: as measured on one device, else from a fit over what was measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fusescope.analysis.scaling.links import least

HOST_BOUND = 0.5
"""Share of a call's time from which on its launches may decide it. On two H100s predictions from shares of
0.36 and less were within 10 % of what two GPUs took (docs/internals/scaling.md); from 0.55 and more, in runs
that are not shipped, 9 to 27 % below."""


@dataclass(frozen=True)
class Compute:
    """Milliseconds of all layers on one rank. measured: {(tensor parallel degree, batch): ms}; terms: of the
    fit a + b/tp + c·batch + d·batch/tp + e·(tp > 1), none negative; worst: its largest relative error over
    the points; launching: the share of the measured time that the host took to launch the layers, where
    that is known."""

    measured: dict[tuple[int, int], float]
    terms: tuple[float, ...]
    worst: float
    launching: dict[tuple[int, int], float] = field(default_factory=dict)

    def ms(self, tp: int, batch: float) -> float:
        """Of a rank's share of every layer on so many sequences. Between and beyond the measured points the
        fit, scaled to the nearest of them."""
        if (tp, batch) in self.measured:
            return self.measured[tp, batch]
        near = _nearest(self.measured, tp, batch)
        return self._fit(tp, batch) * self.measured[near] / self._fit(*near)

    def is_host_bound(self, tp: int, batch: float) -> bool:
        """Whether the host's launches took half of the nearest measured time or more, so that several ranks,
        which share the host and wait for one another, may take longer than arithmetic and collectives."""
        if not self.launching:
            return False
        return self.launching[_nearest(self.launching, tp, batch)] >= HOST_BOUND

    def is_measured(self, tp: int, batch: float) -> bool:
        return (tp, batch) in self.measured

    def _fit(self, tp: float, batch: float) -> float:
        return float(np.dot(self.terms, _features(tp, batch)))


def fit(
    points: Sequence[tuple[int, int, float]], launches: Mapping[tuple[int, int], float] | None = None
) -> Compute:
    """Of (tensor parallel degree, batch, ms), and the milliseconds of launching by degree and batch;
    ValueError for none, and for what is not positive."""
    if not points or not all(tp > 0 and batch > 0 and ms > 0 for tp, batch, ms in points):
        raise ValueError("a prediction needs positive times of a rank's share, measured on one device")
    rows = np.array([_features(tp, batch) for tp, batch, _ in points])
    times = np.array([ms for *_, ms in points])
    columns = rows / times[:, None]
    terms = least(columns, np.ones(len(times)))
    worst = float(np.max(np.abs(columns @ terms - 1)))
    measured = {(tp, batch): ms for tp, batch, ms in points}
    launching = {at: ms / measured[at] for at, ms in (launches or {}).items()}
    return Compute(measured, tuple(float(t) for t in terms), worst, launching)


def _nearest(points: Iterable[tuple[int, int]], tp: float, batch: float) -> tuple[int, int]:
    return min(points, key=lambda p: abs(np.log(p[0] / tp)) + abs(np.log(p[1] / batch)))


def _features(tp: float, batch: float) -> tuple[float, ...]:
    return 1.0, 1.0 / tp, float(batch), batch / tp, float(tp > 1)
