"""The kernel's own time: N launches in one CUDA graph, divided by N.

Replays are queued one behind the other with an event between each two, after an untimed replay that keeps the
GPU busy while they are queued, so that no launch from the host is inside a sample. What remains in a sample
besides the launches is the gap between two graphs, a few microseconds, hence SPAN_MS: 1 ms makes it, and the
0.5 us resolution of events, less than 1 %.

Cold: the launches rotate among enough sets of inputs (and outputs, which are kept apart) that twice the L2
size is between two uses of a set.
"""

from __future__ import annotations

import itertools
import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import torch

from fusescope.measure.failures import Failed, first_line
from fusescope.measure.timing.timer import CYCLES_PER_MS, Look, quiet, shortest

SPAN_MS = 1.0
MOST_LAUNCHES = 2000
MOST_QUEUED = 200  # graphs of single calls in a sample: all of them wait in the device's queue at once
MOST_SETS = 256


class CannotCapture(RuntimeError):
    """The callable does something that a CUDA graph cannot hold; the text says what."""


class CudaGraph:
    """Samples of a replayed graph of ``runs`` in turn: one callable (warm), or one a set of inputs (cold).

    ``pool``: of torch.cuda.graph_pool_handle(), for graphs that are replayed one at a time: their temporaries
    then share memory, and each keeps the result that is looked at. ``expected_ms``: about what a call takes,
    which saves the pilot graph that finds it out. Raises CannotCapture where a call synchronises, allocates
    outside torch, or otherwise cannot be captured.
    """

    def __init__(
        self,
        runs: Sequence[Callable[[], Any]],
        device: str,
        mode: str,
        pool: tuple | None = None,
        expected_ms: float | None = None,
    ):
        self.mode, self._device, self._runs, self._pool = mode, device, list(runs), pool
        self._stream = _stream(device)
        with quiet(), torch.cuda.device(device):
            single = self._warm_up()
            if expected_ms:
                self._graph, self._launches = self._capture(
                    min(MOST_LAUNCHES, math.ceil(SPAN_MS / expected_ms))
                )
                self.cost_ms = shortest(self.take, 2) * self._launches
                return
            self._graph, self._launches = self._capture(min(10, math.ceil(SPAN_MS / single)))
            pilot = shortest(self.take, 3)
            wanted = min(MOST_LAUNCHES, math.ceil(SPAN_MS / max(pilot, 1e-5)))
            if wanted > self._launches:
                self._graph, self._launches = self._capture(wanted)
            elif wanted < self._launches and len(self._runs) == 1:
                self._graph, self._launches = self._capture(max(1, wanted))
            self.cost_ms = shortest(self.take, 2) * self._launches

    def take(self, count: int, look: Look | None = None) -> list[float]:
        events = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
        with quiet(), torch.cuda.device(self._device), torch.cuda.stream(self._stream):
            self._graph.replay()
            events[0].record()
            for event in events[1:]:
                self._graph.replay()
                event.record()
            events[-1].synchronize()
            if look and look.prepared(lambda: self._out):  # and what it leaves unwritten is seen
                self._graph.replay()
                self._stream.synchronize()
        if look:
            look(self._out)
        return [a.elapsed_time(b) / self._launches for a, b in itertools.pairwise(events)]

    def moved(self, shift: int) -> None:
        """Capture again, for inputs that lie elsewhere and results that begin ``shift`` bytes further on."""
        with quiet(), torch.cuda.device(self._device):
            self._warm_up()
            self._graph, self._launches = self._capture(self._launches, shift)

    def _warm_up(self) -> float:
        return _warm_up(self._runs, self._stream)

    def _capture(self, launches: int, shift: int = 0) -> tuple[torch.cuda.CUDAGraph, int]:
        sets = len(self._runs)
        launches = math.ceil(max(launches, 1) / sets) * sets
        graph, kept = _captured(self._runs, launches, self._device, self._stream, self._pool, shift)
        self._out = kept[0]  # of the first callable, whose launch is the first of the last turn
        return graph, launches


class CallGraphs:
    """Like CudaGraph, for calls of which a graph must hold one only: a graph for each of ``runs``.

    A sample is of graphs replayed in turn. The device waits before it until the host has queued them all, so
    no launch from the host is inside. The gap between two graphs is: 1 to 2 us per call that times of
    CudaGraph do not have.
    """

    def __init__(self, runs: Sequence[Callable[[], Any]], device: str, mode: str):
        self.mode, self._device, self._runs = mode, device, list(runs)
        self._launches, self._stream = len(self._runs), _stream(device)
        with quiet(), torch.cuda.device(device):
            self.moved(0)
            begin = time.perf_counter()
            self._replay()
            self._host_ms = (time.perf_counter() - begin) * 1e3
            torch.cuda.synchronize(device)
            turns = math.ceil(min(MOST_QUEUED, SPAN_MS / max(shortest(self.take, 3), 1e-5)) / len(self._runs))
            self._launches, self._host_ms = turns * len(self._runs), turns * self._host_ms
            self.cost_ms = shortest(self.take, 2) * self._launches + 2 * self._host_ms

    def take(self, count: int, look: Look | None = None) -> list[float]:
        found = []
        with quiet(), torch.cuda.device(self._device), torch.cuda.stream(self._stream):
            for _ in range(count):
                start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                torch.cuda._sleep(int(2 * self._host_ms * CYCLES_PER_MS))
                self._graphs[-1].replay()
                start.record()
                self._replay()
                end.record()
                end.synchronize()
                found.append(start.elapsed_time(end) / self._launches)
            if look and look.prepared(lambda: self._out):
                self._replay()
                torch.cuda.current_stream().synchronize()
        if look:
            look(self._out)
        return found

    def moved(self, shift: int) -> None:
        """As CudaGraph's."""
        with quiet(), torch.cuda.device(self._device):
            _warm_up(self._runs, self._stream)
            made = [_captured([run], 1, self._device, self._stream, None, shift) for run in self._runs]
            self._graphs, self._kept = [graph for graph, _ in made], [kept[0] for _, kept in made]
            self._out = self._kept[0]

    def _replay(self) -> None:
        for number in range(self._launches):
            self._graphs[number % len(self._graphs)].replay()


def of_calls(runs: Sequence[Callable[[], Any]], device: str, mode: str) -> CudaGraph | CallGraphs:
    """The sampler of these callables: CallGraphs where they have ``one_call_per_graph``. Errors as of
    CudaGraph."""
    kind = CallGraphs if getattr(runs[0], "one_call_per_graph", False) else CudaGraph
    return kind(runs, device, mode)


def _warm_up(runs: Sequence[Callable[[], Any]], stream) -> float:
    """Everything that happens once (workspaces, plans, lazy loading) happens outside the capture, on the
    capturing stream.

    Returns the ms of the last call, launch path included: an upper bound, enough for the size of a pilot.
    """
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for i in range(max(3, len(runs))):
            start.record()
            runs[i % len(runs)]()
            end.record()
    torch.cuda.synchronize()
    return max(start.elapsed_time(end), 1e-4)


def _captured(runs: Sequence[Callable[[], Any]], launches: int, device: str, stream, pool, shift: int):
    """(graph of so many launches of these callables in turn, the results of the last turn)."""
    graph, sets = torch.cuda.CUDAGraph(), len(runs)
    # warm: each output takes the memory of the last one, and the last launch's stays to be looked at
    kept: deque = deque(maxlen=sets)
    try:
        with torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
            spacer = torch.empty(shift, dtype=torch.uint8, device=device) if shift else None
            for i in range(launches):
                if sets == 1:
                    kept.clear()
                kept.append(runs[i % sets]())
    except Exception as e:
        _stream.cache_clear()  # the next graph does not depend on what this one left of its stream
        if "unjoined" in str(e):
            raise Failed(
                "it returns before its work on another stream, which nothing waits for", "wrong"
            ) from e
        raise CannotCapture(f"it cannot be captured in a CUDA graph: {first_line(e)}") from e
    del spacer
    return graph, kept


@cache
def _stream(device: str) -> torch.cuda.Stream:
    """The stream on which all graphs of a device are captured: memory is reused on the stream alone for which
    it was allocated, so graphs share a pool only on the same one."""
    return torch.cuda.Stream(device)


def sets_needed(footprint: int, l2_bytes: int) -> int:
    """How many sets of ``footprint`` bytes lie in twice the L2, so that a set is evicted before its turn
    comes again.

    One where a single set is that large. Raises CannotCapture where more than MOST_SETS were needed.
    """
    sets = max(1, math.ceil(2 * l2_bytes / max(footprint, 1)) + 1) if footprint < 2 * l2_bytes else 1
    if sets > MOST_SETS:
        raise CannotCapture(
            f"{sets} sets of {footprint} bytes would be needed to exceed an L2 of {l2_bytes} bytes (at "
            f"most {MOST_SETS})"
        )
    return sets


def footprint(inputs: Mapping[str, Any], output_bytes: int) -> int:
    """Bytes of one set: its input tensors and the output."""
    return output_bytes + sum(
        v.untyped_storage().nbytes() for v in inputs.values() if isinstance(v, torch.Tensor)
    )
