"""Implementations of one case sampled in turn: shuffled rounds in one process, until the noise allows an
answer.

A round gives each implementation one turn, in an order drawn anew, so that clocks, temperature and other load
drift over all of them alike and the ratios of a round are pairs. Sampling stops when every implementation's
median is known to the wanted precision (measuring rule 4), or when the budget is spent.
"""

from __future__ import annotations

import random
import statistics as plain
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from fusescope.analysis.statistics import Interval, converged, median_interval, ratio_interval, verdict
from fusescope.core.records import Speedup, Time
from fusescope.measure import failures
from fusescope.measure.timing.timer import TURN_MS, Sampler, samples_a_turn

# unless the budget ends before: fewer pairs give wide intervals of the speed-up (analysis/statistics.py)
WANTED_ROUNDS = 30
FEWEST_ROUNDS = 5  # whatever the budget: below, nothing can be said at all
OVERTIME = 3.0  # times the budget that slow calls may take to reach the least number of samples
MOST_SAMPLES = 10_000  # of one implementation: bounds memory and files, far beyond what any precision needs


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


@dataclass(frozen=True)
class Stop:
    """Measuring rule 4. precision: width of the 95 % interval over the median; min_s and min_samples hold for
    each implementation. budget_s is the wall time of all implementations of the comparison in one mode; slow
    calls get up to OVERTIME times as much to reach min_samples, and after that the sampling ends with
    whatever it has (FEWEST_ROUNDS at least)."""

    precision: float = 0.01
    min_samples: int = 10
    min_s: float = 0.2
    budget_s: float = 5.0


def rounds(
    samplers: Mapping[str, Sampler],
    stop: Stop,
    seed: int,
    turn: Callable[[str], None] = lambda name: None,
    state: Callable[[], dict | None] = lambda: None,
    turn_ms: float = TURN_MS,
) -> dict[str, Series]:
    """Sample all of ``samplers`` in shuffled rounds; a turn takes some ``turn_ms``.

    ``turn(name)`` is called before each turn (it may raise Cancelled); ``state()`` once a round. A sampler
    that raises is left out from then on, its exception in ``failure``; CUDA errors that end the context pass
    through, because nothing can be measured after them.
    """
    rng = random.Random(seed)
    found = {name: Series(s.mode) for name, s in samplers.items()}
    counts = {name: samples_a_turn(s.cost_ms, turn_ms) for name, s in samplers.items()}
    spent = dict.fromkeys(samplers, 0.0)
    started, look_at = time.monotonic(), max(stop.min_samples, WANTED_ROUNDS)
    while alive := [n for n in samplers if found[n].failure is None]:
        rng.shuffle(alive)
        now = state()
        for place, name in enumerate(alive):
            turn(name)
            begin = time.monotonic()
            try:
                taken = samplers[name].take(counts[name])
            except Exception as e:
                if failures.ends_context(e):
                    raise
                found[name].failure = e
                continue
            spent[name] += time.monotonic() - begin
            series = found[name]
            series.rounds.append(taken)
            series.order.append(place)
            if now is not None:
                series.states.append(now)
        alive = [n for n in alive if found[n].failure is None]
        done = max((len(found[n].rounds) for n in alive), default=0)
        if done < FEWEST_ROUNDS:
            continue
        spent_s = time.monotonic() - started
        enough = min(done * counts[n] for n in alive) >= stop.min_samples
        over = spent_s > (stop.budget_s if enough else OVERTIME * stop.budget_s)
        over = over or any(done * counts[n] >= MOST_SAMPLES for n in alive)
        if not over and (done < look_at or any(spent[n] < stop.min_s for n in alive)):
            continue
        look_at = done + max(1, done // 10)  # the test costs as much as some samples: not every round
        for name in alive:
            found[name].converged = converged(found[name].flat, stop.precision, stop.min_samples)
        if over or all(found[n].converged for n in alive):
            break
    return found


def speedup(baseline: Series, other: Series, seed: int = 0) -> Speedup:
    """The paired comparison of two series of the same rounds: median of baseline / other over rounds,
    interval, verdict."""
    pairs = [(plain.median(b), plain.median(o)) for b, o in zip(baseline.rounds, other.rounds)]
    if baseline is other:
        interval = Interval(1.0, 1.0, 1.0)
    else:
        interval = ratio_interval([b for b, _ in pairs], [o for _, o in pairs], seed)
    return Speedup(other.mode, interval.median, interval.low, interval.high, verdict(interval))
