"""Busy shares and overlap of streams of a made-up trace, counted anew on a grid of 1 µs."""

import json

import made_up
import numpy as np
import pytest
from made_up import x

from fusescope.analysis.profile import device_time
from fusescope.profiling.chrome import importer
from fusescope.store import timeline

K, C = "kernel", "gpu_memcpy"
ODD = {
    "no length": [(K, 7, 10, 10), (K, 13, 20, 20)],
    "no length at both ends": [(K, 7, 0, 0), (K, 13, 10, 20), (K, 20, 40, 40)],
    "equal start": [(K, 7, 0, 10), (K, 13, 0, 10), (K, 20, 0, 30), (C, 20, 0, 5)],
    "nested on one stream": [(K, 7, 0, 100), (K, 7, 10, 50), (K, 7, 20, 30), (K, 13, 25, 40)],
    "touching": [(K, 7, 0, 10), (K, 13, 10, 20), (K, 7, 20, 30)],
    "one kernel": [(K, 7, 0, 10)],
    "copies alone": [(C, 7, 0, 10), (C, 13, 5, 12)],
    "a copy under a kernel of its own stream": [(C, 7, 0, 10), (K, 7, 5, 12), (K, 13, 50, 52)],
}


def random(streams: int, count: int, span: int, seed: int) -> list[tuple]:
    draw = np.random.default_rng(seed)
    begin = draw.integers(0, span, count)
    long = np.where(draw.random(count) < 0.2, 0, draw.integers(1, max(2, span // 5), count))
    kinds = np.where(draw.random(count) < 0.3, C, K)
    which = draw.integers(0, streams, count)
    rows = zip(kinds, which, begin, long, strict=True)
    return [(str(kind), int(s), int(b), int(b + n)) for kind, s, b, n in rows]


RANDOM = {
    f"{n} streams, {seed}": random(n, 40 + 6 * n, 300, seed) for n in (1, 2, 3, 64) for seed in range(3)
}


def read(spans, tmp_path, named):
    """(parts of the device's time, its line of the summary) of a trace that names streams in its arguments,
    or by thread alone."""
    found = [
        x(kind, "k", 1000 + b, e - b, {"device": 0} | ({"stream": s} if named else {}), pid=0, tid=s)
        for kind, s, b, e in spans
    ]
    (tmp_path / "artifacts").mkdir()
    file = made_up.trace(tmp_path / "artifacts" / "trace.json", found)
    importer.load(file, lambda name: tmp_path / "artifacts" / name)
    summary = json.loads((tmp_path / "artifacts" / "summary.json").read_text())
    return device_time.read(timeline.device_activities(tmp_path)), summary["devices"][0]


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("spans", [*ODD.values(), *RANDOM.values()], ids=[*ODD, *RANDOM])
def test_figures_equal_a_count_on_a_grid(spans, named, tmp_path):
    parts, device = read(spans, tmp_path, named)
    first, last = min(s[2] for s in spans), max(s[3] for s in spans)
    streams = sorted({s[1] for s in spans})
    runs = {kind: np.zeros((len(streams), last - first), bool) for kind in (K, C)}
    for kind, stream, begin, end in spans:
        runs[kind][streams.index(stream), begin - first : end - first] = True
    kernels, copies = runs[K], runs[C]
    µs = lambda cells: 1000 * int(cells.sum())  # noqa: E731
    assert device["last_ns"] - device["first_ns"] == 1000 * (last - first)
    assert device["busy_ns"] == µs((kernels | copies).any(0))
    assert device["kernel_ns"] == 1000 * sum(e - b for kind, _, b, e in spans if kind == K)
    assert device["copy_ns"] == 1000 * sum(e - b for kind, _, b, e in spans if kind == C)
    assert parts.whole["compute_ns"] == µs(kernels.any(0))
    assert parts.whole["memory_ns"] == µs(copies.any(0) & ~kernels.any(0))
    assert sum(parts.whole.values()) == 1000 * (last - first)
    if len(streams) == 1:
        assert parts.concurrency == ()
        return
    (at_once,) = parts.concurrency
    counted = {s: sum(span[1] == s for span in spans) for s in streams}
    busy = (kernels | copies).sum(1)
    assert {s.number: (s.events, s.busy_ns) for s in at_once.streams} == {
        s: (counted[s], 1000 * int(busy[n])) for n, s in enumerate(streams)
    }
    assert at_once.span_ns == 1000 * (last - first)
    assert at_once.kernels_ns == µs(kernels.sum(0) > 1)
    others = np.array([np.delete(kernels, n, 0).any(0) for n in range(len(streams))])
    assert at_once.copies_ns == µs((copies & others).any(0))
