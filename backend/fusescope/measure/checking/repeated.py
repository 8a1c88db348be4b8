"""Timing repeats calls on the same values. What such calls take is true only of callables that do their work
again each time.

A callable that compares its inputs with those of an earlier call, and returns the result of then where they
are equal, is right on all values. It is seen by its time: pairs of calls, one after its inputs were written
with the values that they held, one after they were written with others, in an order drawn for each pair. The
writing is the same, so that caches are alike; other load falls on either call by chance.
"""

from __future__ import annotations

import contextlib
import heapq
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
# Other processes make calls longer, never shorter: where half the pairs are noise, the fastest calls tell.
# Where calls are equal, each of the fastest is one on the same values by the toss of a coin, so as many as
# these that are all SLOWER times faster than any on other values accuse once in 10 000, over MOST looks.
FASTEST = 20
LONG_MS = 3000.0  # of calls, counted likewise, that their fastest are waited for


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
    number, unclear, told, took = 0, 0, 0.0, {False: [], True: []}
    call()
    while told < _KEEPS:
        for others in rng.sample((False, True), 2):
            if others:
                number = rng.randrange(1, 1 << 30)
            kept.vary(number)
            took[others].append(call())
        unclear += took[True][-1] / took[False][-1] > CLEAR
        pairs, fastest = len(took[True]), {others: min(calls) for others, calls in took.items()}
        told = unclear * _UNCLEAR + (pairs - unclear) * _CLEAR
        if sum(ms * SLOWER < fastest[True] for ms in took[False]) >= FASTEST:
            return _accused(fastest[True] / fastest[False], f"the fastest of {pairs} pairs of calls")
        spent = pairs * sum(fastest.values())
        alike = fastest[True] <= SLOWER * fastest[False] and all(map(_settled, took.values()))
        works = told <= (_WORKS if spent < SHORT_MS else 0.0) and (alike or spent > LONG_MS)
        if works or pairs == MOST:
            return None
    middle = statistics.median(b / a for a, b in zip(took[False], took[True]))
    return _accused(middle, f"{unclear} of {pairs} pairs of calls") if middle >= SLOWER else None


def _settled(calls: list[float]) -> bool:
    """Whether the fastest of them are so alike that they are the work itself, without a wait for others."""
    return len(calls) >= 3 and heapq.nsmallest(3, calls)[-1] <= SLOWER * min(calls)


def _accused(times: float, where: str) -> str:
    return (
        f"it takes {times:.3g} times as long once the values of its inputs have changed (in {where}): it "
        "answers repeated calls from what it has kept, and has no time of its own"
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
