"""Samples of a CUDA graph that an implementation owns and replays itself."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

import torch

from fusescope.measure.timing.timer import CYCLES_PER_MS, Look, Sampler, quiet, shortest

_HOST_MS = 0.05  # a replay that takes the host less is always ahead of the device


class Replays(Sampler):
    """Replays queued back to back behind an untimed one, an event between each two.

    What torch.compile replays passes its guards in Python first, which takes longer than a small model: the
    device then waits until a whole turn is queued, so that its own time is seen, as for other graphs.
    ``result`` gives what the last replay computed; None: the replay itself returns it.
    """

    mode = "graph"

    def __init__(self, replay: Callable[[], Any], device: str, result: Callable[[], Any] | None = None):
        self._replay, self._device, self._result, self._host_ms = replay, device, result, 0.0
        self.take(1)
        begin = time.perf_counter()
        replay()
        self._host_ms = (time.perf_counter() - begin) * 1e3
        torch.cuda.synchronize(device)
        self.cost_ms = shortest(self.take, 3) + self._host_ms

    def take(self, count: int, look: Look | None = None) -> list[float]:
        events = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
        with quiet(), torch.cuda.device(self._device):
            if self._host_ms > _HOST_MS:
                torch.cuda._sleep(int((count + 1) * self._host_ms * 1.5 * CYCLES_PER_MS))
            self._replay()
            events[0].record()
            for event in events[1:]:
                out = self._replay()
                event.record()
            events[-1].synchronize()
        if look:
            look(self._result() if self._result else out)
        return [a.elapsed_time(b) for a, b in itertools.pairwise(events)]
