"""Implementations of one case sampled in turn: shuffled rounds in one process, until the noise allows an
answer.

A round gives each implementation one turn, in random order, so that clocks, temperature and other load
drift over all of them alike and the ratios of a round are pairs. Between rounds the buffers move, so that
where they lie is part of the noise. Sampling stops when every implementation's median is known to the wanted
precision (measuring rule 4) and every comparison with the baseline is decided, or when the budget is spent.
"""

from __future__ import annotations

import math
import random
import statistics as plain
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from fusescope.analysis.statistics import converged, enough, median_interval, ratio_interval
from fusescope.core.records import BenchSpec, Speedup, Time
from fusescope.core.verdict import LEFT_OPEN, SAME_WITHIN
from fusescope.measure import failures
from fusescope.measure.timing.timer import TURN_MS, Sampler, samples_a_turn

# unless the budget ends before: fewer pairs leave an allowance to the interval (analysis/statistics.py)
WANTED_ROUNDS = 60
FEWEST_ROUNDS = 5  # whatever the budget
ALIKE = LEFT_OPEN  # times as slow as the baseline, or as fast, is about as fast
FEW_A_TURN = 3  # samples, of which the first is not yet one of many
LOOKS = 1.5  # times as many rounds at the next look: each look is one more chance to stop on a mistake
MOVING = 0.25  # of the time of sampling that moving buffers may take
OVERTIME = 3.0  # times the budget that slow calls may take to reach the least number of samples
MOST_SAMPLES = 10_000  # of one implementation: bounds memory and files, far beyond what any precision needs


@dataclass(frozen=True)
class Stop:
    """Measuring rule 4. precision: width of the 95 % interval over the median; min_s and min_samples hold for
    each implementation. same_within: what counts as the same. budget_s is the wall time of all
    implementations of the comparison in one mode; slow calls get up to OVERTIME times as much to reach
    min_samples, and after that the sampling ends with whatever it has (FEWEST_ROUNDS at least)."""

    precision: float = 0.01
    min_samples: int = 10
    min_s: float = 0.2
    budget_s: float = 5.0
    same_within: float = SAME_WITHIN

    @classmethod
    def of(cls, spec: BenchSpec, count: int = 1) -> Stop:
        """The rule that a specification gives, its budget ``count`` times."""
        budget_s = count * spec.budget_s
        return cls(spec.precision, spec.min_samples, spec.min_s, budget_s, spec.same_within)


@dataclass
class Series:
    """Raw samples of one implementation in one mode, by round, and the device's state in each round."""

    mode: str
    rounds: list[list[float]] = field(default_factory=list)  # ms
    states: list[dict] = field(default_factory=list)
    order: list[int] = field(default_factory=list)  # its place in each round
    converged: bool = False
    failure: Exception | None = None

    @property
    def flat(self) -> list[float]:
        return [ms for taken in self.rounds for ms in taken]

    def time(self) -> Time:
        interval = median_interval(self.flat)
        return Time(interval.median, interval.low, interval.high, len(self.flat), self.converged)

    def precise(self, stop: Stop, difference: float = 0.0) -> bool:
        """Whether the median is known to the wanted precision, or to a share of a ``difference``
        (logarithmic)."""
        return converged(self.flat, enough(stop.precision, difference), stop.min_samples)


class Move(Protocol):
    """Gives the inputs of all samplers other buffers; returns by how many bytes results are to shift."""

    cost_s: float  # about what the first one takes with all samplers, in seconds; infinite: no more of them

    def __call__(self) -> int: ...


def rounds(
    samplers: Mapping[str, Sampler],
    stop: Stop,
    seed: int,
    turn: Callable[[str], None] = lambda name: None,
    state: Callable[[], dict | None] = lambda: None,
    turn_ms: float = TURN_MS,
    baseline: str | None = None,
    move: Move | None = None,
) -> dict[str, Series]:
    """Sample all of ``samplers`` in shuffled rounds; a turn takes some ``turn_ms``.

    ``turn(name)`` is called before each turn (it may raise Cancelled); ``state()`` once per round; ``move()``
    between rounds, as often as MOVING allows. Without a ``baseline`` no comparison needs to be decided. A
    sampler that raises is left out from then on, its exception in ``failure``; CUDA errors that end the
    context pass through, because nothing can be measured after them.
    """
    sampling = _Sampling(samplers, stop, random.Random(seed), turn_ms, baseline)
    mover = _Mover(move, samplers)
    while alive := sampling.alive():
        if move:
            mover.between_rounds({n: sampling.found[n] for n in alive}, sum(sampling.spent.values()))
        sampling.round(turn, state())
        if sampling.finished():
            break
    _conclude({n: sampling.found[n] for n in sampling.alive()}, baseline, stop)
    return sampling.found


class _Sampling:
    """What has been sampled so far, and whether that is enough."""

    def __init__(
        self,
        samplers: Mapping[str, Sampler],
        stop: Stop,
        rng: random.Random,
        turn_ms: float,
        baseline: str | None,
    ):
        self.samplers, self.stop, self.rng, self.baseline = samplers, stop, rng, baseline
        self.found = {name: Series(s.mode) for name, s in samplers.items()}
        self.counts = _counts(samplers, turn_ms, baseline)
        self.spent = dict.fromkeys(samplers, 0.0)  # seconds of each in its turns
        self.started, self.look_at = time.monotonic(), max(stop.min_samples, WANTED_ROUNDS)

    def alive(self) -> list[str]:
        """Those that have not failed."""
        return [name for name, series in self.found.items() if series.failure is None]

    def round(self, turn: Callable[[str], None], state: dict | None) -> None:
        """One turn of each, in a drawn order."""
        order = self.alive()
        self.rng.shuffle(order)
        for place, name in enumerate(order):
            turn(name)
            begin, series = time.monotonic(), self.found[name]
            taken = _attempt(series, partial(self.samplers[name].take, self.counts[name]))
            if taken is None:
                continue
            self.spent[name] += time.monotonic() - begin
            series.rounds.append(taken)
            series.order.append(place)
            if state is not None:
                series.states.append(state)

    def finished(self) -> bool:
        """Whether the budget is spent or, looked at less and less often, everything is known."""
        alive = self.alive()
        done = max((len(self.found[n].rounds) for n in alive), default=0)
        if done < FEWEST_ROUNDS:
            return False
        if self._over({n: done * self.counts[n] for n in alive}):
            return True
        if done < self.look_at or any(self.spent[n] < self.stop.min_s for n in alive):
            return False
        self.look_at = math.ceil(LOOKS * done)
        several = {n: self.found[n] for n in alive}
        precise = all(s.precise(self.stop) for s in several.values())
        return precise and _decided(several, self.baseline, self.stop)

    def _over(self, samples: Mapping[str, int]) -> bool:
        """Whether time or room for more is gone; ``samples``: how many there are of each."""
        enough = min(samples.values()) >= self.stop.min_samples
        budget_s = self.stop.budget_s if enough else OVERTIME * self.stop.budget_s
        return time.monotonic() - self.started > budget_s or max(samples.values()) >= MOST_SAMPLES


def _counts(samplers: Mapping[str, Sampler], turn_ms: float, baseline: str | None) -> dict[str, int]:
    """Samples a turn of each. Those about as fast as the baseline take as many as it does: the first sample
    of a turn is some per cent slower than the others, and must weigh alike where a ratio is close to 1."""
    counts = {name: samples_a_turn(s.cost_ms, turn_ms) for name, s in samplers.items()}
    if baseline in samplers:
        cost_ms = samplers[baseline].cost_ms
        alike = {n for n, s in samplers.items() if cost_ms / ALIKE < s.cost_ms < cost_ms * ALIKE}
        counts |= dict.fromkeys(alike, counts[baseline])
    return counts


class _Mover:
    """Moves the buffers between rounds while that takes no more than its share of the time."""

    def __init__(self, move: Move | None, samplers: Mapping[str, Sampler]):
        self.move, self.samplers = move, samplers
        self.next_s, self.spent_s = move.cost_s if move else math.inf, 0.0

    def between_rounds(self, found: Mapping[str, Series], sampling_s: float) -> None:
        """``sampling_s``: seconds of sampling so far. A sampler that cannot move fails."""
        if self.spent_s + self.next_s > MOVING * sampling_s:
            return
        begin, shift = time.monotonic(), self.move()
        for name, series in found.items():
            _attempt(series, partial(self.samplers[name].moved, shift))
        took_s = time.monotonic() - begin
        self.spent_s += took_s
        self.next_s = took_s if math.isfinite(self.move.cost_s) else math.inf


def speedup(baseline: Series, other: Series, stop: Stop = Stop()) -> Speedup:
    """The comparison of two series of the same rounds: the ratio of their medians as shown, its interval over
    the paired rounds, which reaches LEFT_OPEN either way at least where a median is not known well enough or
    the two did not sample alike, and the verdict that follows."""
    if baseline is other:
        return Speedup(other.mode, 1.0, 1.0, 1.0, stop.same_within, converged=True)
    pairs = [(plain.median(b), plain.median(o)) for b, o in zip(baseline.rounds, other.rounds)]
    shown = plain.median(baseline.flat) / plain.median(other.flat)
    interval = ratio_interval([b for b, _ in pairs], [o for _, o in pairs], shown)
    precise = all(s.precise(stop, abs(math.log(shown))) for s in (baseline, other))
    known = precise and _sampled_alike(baseline, other, shown)
    return Speedup(
        other.mode, interval.median, interval.low, interval.high, stop.same_within, converged=known
    )


def _sampled_alike(baseline: Series, other: Series, ratio: float) -> bool:
    """Whether the first samples of a turn weigh alike in both, where that matters. Of two about as fast, one
    with a sample a turn and one with twenty were no equals to their calibration: a tenth of a second in which
    the machine had no time for the one."""
    few, many = sorted(len(series.rounds[-1]) for series in (baseline, other))
    return few >= FEW_A_TURN or many <= 2 * few or abs(math.log(ratio)) > math.log(ALIKE)


def _attempt(series: Series, work: Callable[[], list[float] | None]) -> list[float] | None:
    """What ``work`` returns; None where it raised, which is then the failure of the series."""
    try:
        return work()
    except Exception as e:
        if failures.ends_context(e):
            raise
        series.failure = e
        return None


def _decided(found: Mapping[str, Series], baseline: str | None, stop: Stop) -> bool:
    """Whether every comparison with the baseline has an answer."""
    if baseline not in found:
        return True
    return all(speedup(found[baseline], other, stop).verdict != "inconclusive" for other in found.values())


def _conclude(found: Mapping[str, Series], baseline: str | None, stop: Stop) -> None:
    """Say of each series whether it converged: the baseline for the closest of the others."""
    own = found.get(baseline)
    middle = {n: plain.median(s.flat) for n, s in found.items()}
    apart = {n: abs(math.log(m / middle[baseline])) if own else 0.0 for n, m in middle.items()}
    if own:
        apart[baseline] = min((d for n, d in apart.items() if n != baseline), default=0.0)
    for name, series in found.items():
        series.converged = series.precise(stop, apart[name])
