"""Implementations of one case sampled in turn over the ranks: shuffled rounds, a barrier before each call,
the slowest rank's time."""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Mapping

from fusescope.measure.compare import FEWEST_ROUNDS, LOOKS, MOST_SAMPLES, OVERTIME, Series, Stop, speedup
from fusescope.measure.parallel.world import World
from fusescope.models.parallel.placed import Placed

_FIRST_LOOK = 10
MODE = "eager"  # a call from the host, as a user makes it; nothing is captured


def sample(
    world: World,
    placed: Mapping[str, Placed],
    baseline: str | None,
    stop: Stop,
    seed: int,
    check: Callable[[float], dict],
) -> dict[str, Series]:
    """Series by implementation at rank 0 (elsewhere empty ones). ``check(share)`` is asked once a round at
    rank 0 with the share of the budget that is spent; it gives the device's state, or raises to stop."""
    found = {name: Series(MODE) for name in placed}
    order, begun = random.Random(seed), time.perf_counter()
    look = _FIRST_LOOK
    while True:
        turn = order.sample(list(placed), len(placed))
        taken = {name: timed(world, placed[name]) for name in turn}
        ranks = world.gather(taken)
        spent = time.perf_counter() - begun
        if world.first:
            for place, name in enumerate(turn):
                found[name].rounds.append([max(ms[name] for ms in ranks)])
                found[name].order.append(place)
        rounds = len(found[turn[0]].rounds)

        def decide(rounds=rounds, spent=spent, look=look) -> bool:
            state = check(min(1.0, spent / stop.budget_s))
            for series in found.values():
                series.states.append(state)
            return _over(found, baseline, stop, rounds, spent, look)

        if world.decide(decide):
            break
        if rounds >= look:
            look = math.ceil(look * LOOKS)
    if world.first:
        _conclude(found, baseline, stop)
    return found


def timed(world: World, placed: Placed) -> float:
    """Milliseconds of one call on this rank after a barrier; 0 where it has no part in it."""
    world.barrier()
    if not placed.member:
        return 0.0
    start = time.perf_counter()
    placed.run()
    world.wait()
    return (time.perf_counter() - start) * 1e3


def _over(found, baseline, stop: Stop, rounds: int, spent: float, look: int) -> bool:
    """Whether enough is known (measuring rule 4), or the time is over."""
    if rounds < FEWEST_ROUNDS:
        return False
    if rounds >= MOST_SAMPLES or spent > stop.budget_s * (1 if rounds >= stop.min_samples else OVERTIME):
        return True
    if rounds < max(look, stop.min_samples):
        return False
    _conclude(found, baseline, stop)
    base = found.get(baseline)
    decided = base is None or all(
        speedup(base, series, stop).verdict != "inconclusive" for series in found.values()
    )
    enough = all(sum(series.flat) / 1e3 >= stop.min_s for series in found.values())
    return decided and enough and all(series.converged for series in found.values())


def _conclude(found: Mapping[str, Series], baseline: str | None, stop: Stop) -> None:
    """Say of each series whether its median is known precisely enough for its distance from the baseline."""
    base = found.get(baseline)
    for series in found.values():
        apart = 0.0
        if base is not None and base is not series:
            apart = abs(math.log(statistics.median(base.flat) / statistics.median(series.flat)))
        series.converged = series.precise(stop, apart)
