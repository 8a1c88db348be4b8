"""How long one call takes: a sampler for each mode, all with ``take(count) -> [ms, …]``.

Every sampler makes one untimed call before a turn (in warm modes it brings back the caches that the other
implementations of a comparison have taken; in all modes it wakes threads and clocks), and the garbage
collector is off while samples are taken.

eager        calls back to back, as a user's loop makes them, between two CUDA events on an idle GPU: the
             slower of launch path and kernel. On the CPU perf_counter_ns around the call, repeated inside
             where a call is short.
eager_cold   one call per sample. CUDA: a buffer of twice the L2 is written, then the device is waited for, so
             that the launch path is not hidden behind the write. CPU: a buffer larger than the last-level
             cache is read.
graph        (graph.py) N launches in one CUDA graph, divided by N; N graphs of one call that faults so.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any, Protocol

import torch

CPU_SPAN_MS = 0.05  # perf_counter_ns resolves some 50 ns and its call costs as much: 0.1 % of this
EAGER_SPAN_MS = 0.2  # CUDA events resolve 0.5 us: 0.25 % of this
# an implementation's turn in a round: short, so that drift hits all alike, yet many times the switch's cost
TURN_MS = 4.0
MOST_A_TURN = 20
LONG_MS = (
    200.0  # a call this long brings back its own caches in a sliver of its time: no untimed call before it
)
CALIBRATION = 10  # samples at most of which the shortest says what a call takes
CALIBRATION_NS = 100_000_000  # after which no more of them are taken
CYCLES_PER_MS = 2_000_000  # of torch.cuda._sleep at about 2 GHz; slower clocks only wait longer


class Look(Protocol):
    """Looks at the result of a timed call."""

    def __call__(self, out: Any) -> None: ...

    def prepared(self, call: Callable[[], Any]) -> bool:
        """Right before the call that is looked at, outside every timed span: the result of ``call`` may be
        overwritten, and inputs may get other values. Whether that was done."""


class Sampler(Protocol):
    mode: str
    cost_ms: (
        float  # what one sample costs in all, untimed parts included; set by the constructor's calibration
    )

    def take(self, count: int, look: Look | None = None) -> list[float]:
        """``count`` samples in ms per call, after one untimed call. ``look`` is given the result of the very
        last timed call, outside every timed span; what it raises passes through."""

    def moved(self, shift: int) -> None:
        """The inputs lie elsewhere now. Whoever keeps addresses looks again, behind ``shift`` bytes more."""


def samples_a_turn(cost_ms: float, turn_ms: float = TURN_MS) -> int:
    """How many samples a turn of ``turn_ms`` holds: at least one, at most MOST_A_TURN."""
    return max(1, min(MOST_A_TURN, int(turn_ms / max(cost_ms, 1e-6))))


def shortest(take: Callable[[int], list[float]], count: int) -> float:
    """The least of ``count`` samples in ms, and of up to CALIBRATION where they are quickly taken: what one
    call takes also on a busy machine, where two in a row may each wait for another process's time slice.

    A call of 24 us that was so taken for slow had one sample a turn, right after the switch: 7 % slower than
    the samples of its equal, which had 20.
    """
    begin, found = time.perf_counter_ns(), take(count)
    while len(found) < CALIBRATION and time.perf_counter_ns() - begin < CALIBRATION_NS:
        found += take(1)
    return min(found)


class CpuEager(Sampler):
    """Wall time of a call on the CPU; cold where a ``flush`` is given, which is called before every sample,
    untimed."""

    def __init__(self, run: Callable[[], Any], flush: Callable[[], None] | None = None):
        self.mode = "eager_cold" if flush else "eager"
        self._run, self._flush, self._inner, self._wake = run, flush, 1, True
        single = max(shortest(self.take, 2), 1e-6)
        self._wake = single < LONG_MS
        if flush is None:
            self._inner = max(1, math.ceil(CPU_SPAN_MS / single))
        self.cost_ms = self._inner * single + _cost_ms(flush)

    def take(self, count: int, look: Look | None = None) -> list[float]:
        run, flush, inner, clock, found = self._run, self._flush, self._inner, time.perf_counter_ns, []
        with quiet():
            if self._wake:
                run()
            for _ in range(count - 1 if look else count):
                if flush:
                    flush()
                start = clock()
                for _ in range(inner):
                    run()
                found.append((clock() - start) / inner / 1e6)
            if look:
                found.append(self._seen(look) / inner / 1e6)
        return found

    def _seen(self, look: Look) -> int:
        """One sample in ns whose last result is looked at before it is released; its release, a part of the
        call, is timed apart."""
        run, clock = self._run, time.perf_counter_ns
        start = clock()
        for _ in range(self._inner - 1):
            run()
        took = clock() - start
        look.prepared(run)
        if self._flush:
            self._flush()
        start = clock()
        out = run()
        took += clock() - start
        look(out)
        start = clock()
        del out
        return took + clock() - start


class CudaEager(Sampler):
    """Time of back-to-back calls between CUDA events, launch path included; cold where a ``flush`` is
    given."""

    def __init__(self, run: Callable[[], Any], device: str, flush: Callable[[], None] | None = None):
        self.mode = "eager_cold" if flush else "eager"
        self._run, self._flush, self._device, self._inner = run, flush, device, 1
        single = max(shortest(self.take, 3), 1e-4)
        if flush is None:
            self._inner = max(1, math.ceil(EAGER_SPAN_MS / single))
        self.cost_ms = self._inner * single + _cost_ms(flush)

    def take(self, count: int, look: Look | None = None) -> list[float]:
        run, inner, found = self._run, self._inner, []
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with quiet(), torch.cuda.device(self._device):
            run()
            for left in reversed(range(count)):
                if look and not left:
                    look.prepared(run)
                if self._flush:
                    self._flush()
                torch.cuda.synchronize()
                start.record()
                for _ in range(inner - 1):
                    run()
                out = run()
                end.record()
                end.synchronize()
                found.append(start.elapsed_time(end) / inner)
                if look and not left:
                    look(out)
                del out
        return found


@contextmanager
def quiet():
    """No garbage collection and no autograd while samples are taken."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        with torch.no_grad():
            yield
    finally:
        if enabled:
            gc.enable()


def first_call(make: Callable[[], Callable[[], Any]], device: str) -> tuple[Callable[[], Any], Any, float]:
    """Make the callable and call it once, from cold: (run, its result, ms until the result was there)."""
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)
    start = time.perf_counter_ns()
    with torch.no_grad():
        run = make()
        out = run()
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)
    return run, out, (time.perf_counter_ns() - start) / 1e6


def _cost_ms(flush: Callable[[], None] | None) -> float:
    """What emptying the caches adds to each sample."""
    if flush is None:
        return 0.0
    start = time.perf_counter_ns()
    flush()
    return (time.perf_counter_ns() - start) / 1e6


class Flush:
    """Empties the caches of a device: writes twice the L2 (CUDA) or reads four times the last-level cache
    (CPU, at most 1 GiB), always the same buffer. On the CPU the threads share the reading, each may sit
    behind a last-level cache of its own (virtual machines hide that), and caches do not replace in strict
    order, hence four times. ``size`` of the cache in bytes; 32 MiB where the machine does not say."""

    def __init__(self, device: str, size: int | None):
        size = size or 32 << 20
        self._cuda = device.startswith("cuda")
        count = (2 * size if self._cuda else min(4 * size, max(1 << 30, 3 * size // 2))) // 4
        self._buffer = torch.rand(count, device=device)

    def __call__(self) -> None:
        if self._cuda:
            self._buffer.add_(1)
        else:
            torch.sum(self._buffer)
