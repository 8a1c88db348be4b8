"""Timing repeats calls on the same values. What such calls take is true only of callables that do their work
again each time.

A callable that compares its inputs with those of an earlier call, and returns the result of then where they
are equal, is right on all values. It is seen by its time: pairs of calls, one after its inputs were written
with the values that they held, one after they were written with others, in an order drawn for each pair. The
writing is the same, so that caches are alike; other load falls on either call by chance.
"""

from __future__ import annotations

import contextlib
import math
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from fusescope.measure.checking.inputs import Kept
from fusescope.measure.timing.timer import CYCLES_PER_MS, quiet

CLEAR = 1.1  # times the time on the same values: a pair below says that the work is done again
SLOWER = 1.25  # in the median: less than this may be branches that were predicted
MOST = 100  # pairs
# Wald's test of how often a pair is not clear: in half of them, as the drawn order makes it at most where
# calls are equal, or in 85 of 100. The first is called the second once in 10 000, the second the first once
# in 100.
_UNCLEAR, _CLEAR = math.log(0.85 / 0.5), math.log(0.15 / 0.5)
_KEEPS, _WORKS = math.log(1e4), math.log(1e-2)
# of calls, each as long as the shortest took, after which the first is believed where no more speaks for the
# second than against it
SHORT_MS = 300.0


def slower_on_others(run: Callable[[], Any], kept: Kept, rng: random.Random) -> str | None:
    """What is to be said where ``run`` takes longer after the values of its inputs have changed; None where
    it does its work again on the same ones, or where there is no room to try. ``kept`` is put back."""
    device = next((t.device for t in kept.copies.values() if t.is_cuda), None)
    call = _on_gpu(run, device) if device else _on_cpu(run)
    try:
        with contextlib.suppress(torch.OutOfMemoryError, MemoryError), quiet():
            return judge(call, kept, rng)
    finally:
        kept.restore()


def judge(call: Callable[[], float], kept: Kept, rng: random.Random) -> str | None:
    """As ``slower_on_others``, of ``call``, which gives the ms that it took."""
    number, ratios, unclear, told, shortest = 0, [], 0, 0.0, {False: math.inf, True: math.inf}
    call()
    while told < _KEEPS:
        took = {}
        for others in rng.sample((False, True), 2):
            if others:
                number = rng.randrange(1, 1 << 30)
            kept.vary(number)
            took[others] = call()
            shortest[others] = min(shortest[others], took[others])
        ratios.append(took[True] / took[False])
        unclear += ratios[-1] > CLEAR
        told = unclear * _UNCLEAR + (len(ratios) - unclear) * _CLEAR
        least = _WORKS if len(ratios) * sum(shortest.values()) < SHORT_MS else 0.0
        if told <= least or len(ratios) == MOST:
            return None
    if (middle := statistics.median(ratios)) < SLOWER:
        return None
    return (
        f"it takes {middle:.3g} times as long once the values of its inputs have changed (in {unclear} of "
        f"{len(ratios)} pairs of calls): it answers repeated calls from what it has kept, and has no time of "
        "its own"
    )


def _on_cpu(run: Callable[[], Any]) -> Callable[[], float]:
    def call() -> float:
        begun = time.perf_counter_ns()
        run()
        return max(time.perf_counter_ns() - begun, 1) / 1e6

    return call


def _on_gpu(run: Callable[[], Any], device: torch.device) -> Callable[[], float]:
    """The device waits until the call is queued, so that its own time is seen, not that of its launches."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    host_ms = [1.0]

    def call() -> float:
        with torch.cuda.device(device):
            torch.cuda.synchronize()
            torch.cuda._sleep(int(2 * min(host_ms) * CYCLES_PER_MS))
            start.record()
            begun = time.perf_counter()
            run()
            host_ms.append((time.perf_counter() - begun) * 1e3)
            end.record()
            end.synchronize()
        return max(start.elapsed_time(end), 1e-4)

    return call
