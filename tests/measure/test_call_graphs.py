"""Calls of which a CUDA graph may hold one only: a graph for each, replayed in turn behind a wait."""

import contextlib
from functools import cache
from types import SimpleNamespace

import pytest

from fusescope.measure import failures
from fusescope.measure.timing import graph


class Device:
    """Stands for torch.cuda: a clock in ms that waits, replays and nothing else move; a replay takes 0.25."""

    def __init__(self):
        self.now, self.captured, self.replayed = 0.0, [], []
        device = self

        class CUDAGraph:
            def __init__(self):
                device.captured.append(self)
                self.calls = 0

            def replay(self):
                device.replayed.append(device.captured.index(self))
                device.now += 0.25 * self.calls

        class Event:
            def __init__(self, enable_timing):
                self.at = None

            def record(self):
                self.at = device.now

            def elapsed_time(self, other):
                return other.at - self.at

            def synchronize(self):
                pass

        self.CUDAGraph, self.Event = CUDAGraph, Event
        self.inside = None

    @contextlib.contextmanager
    def graph(self, made, **how):
        self.inside = made
        yield
        self.inside = None

    def call(self):
        if self.inside is not None:
            self.inside.calls += 1
        return f"result of graph {len(self.captured) - 1}"

    def Stream(self, device):
        return SimpleNamespace(wait_stream=lambda other: None)

    def _sleep(self, cycles):
        self.now += 1000

    def current_stream(self):
        return SimpleNamespace(synchronize=lambda: None)

    def synchronize(self, *device):
        pass

    stream = device = staticmethod(lambda which: contextlib.nullcontext())


@pytest.mark.parametrize("harsh", [False, True])
@pytest.mark.parametrize("sets, launches", [(1, 4), (3, 6)])
def test_each_graph_holds_one_call_and_times_are_of_one(sets, launches, harsh, monkeypatch):
    device = Device()
    monkeypatch.setattr(graph, "torch", SimpleNamespace(cuda=device))
    monkeypatch.setattr(graph, "_stream", device.Stream)

    def run():
        return device.call()

    run.one_call_per_graph = True
    sampler = graph.of_calls([run] * sets, "cuda:0", "graph")
    assert isinstance(sampler, graph.CallGraphs) and [g.calls for g in device.captured] == [1] * sets
    device.replayed.clear()
    looked = []

    class Look:
        __call__ = staticmethod(looked.append)

        @staticmethod
        def prepared(call):
            assert call() == "result of graph 0"
            return harsh

    assert sampler.take(2, Look()) == [0.25, 0.25] and looked == ["result of graph 0"]
    turn = [sets - 1, *(list(range(sets)) * (launches // sets))]  # an untimed one before
    assert device.replayed == 2 * turn + harsh * turn[1:]  # what is looked at is written after it was spoilt
    sampler.moved(0)
    assert len(device.captured) == 2 * sets and sampler.take(1) == [0.25]


def test_work_that_nothing_waits_for_is_wrong(monkeypatch):
    device = Device()
    monkeypatch.setattr(graph, "torch", SimpleNamespace(cuda=device))
    monkeypatch.setattr(graph, "_stream", cache(device.Stream))

    def run():
        if device.inside is not None:
            raise RuntimeError("CUDA error: capturing stream has unjoined work")

    run.one_call_per_graph = True
    with pytest.raises(failures.Failed, match="which nothing waits for") as found:
        graph.of_calls([run], "cuda:0", "graph")
    assert found.value.status == "wrong"


def test_others_share_a_graph(monkeypatch):
    monkeypatch.setattr(graph, "CudaGraph", lambda *given: given)
    assert graph.of_calls([len], "cuda:0", "graph") == ([len], "cuda:0", "graph")


@pytest.mark.gpu
def test_on_a_gpu_the_time_is_that_of_one_graph_and_a_gap():
    import torch

    x = torch.randn(1 << 24, device="cuda")

    def run():
        return x * 2

    shared = graph.of_calls([run], "cuda:0", "graph")
    run.one_call_per_graph = True
    alone = graph.of_calls([run], "cuda:0", "graph")
    one, other = min(shared.take(5)), min(alone.take(5))
    assert 0.9 * one < other < one + 0.01
