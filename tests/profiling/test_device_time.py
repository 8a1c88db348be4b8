"""A device's time, each instant once: parts and steps add up to the span, and equal those of many ranks."""

import numpy as np
import pytest
from made_up import kernel, launch, load, trace, x

from fusescope.analysis.profile.device_time import ABSENT, Activities, Gaps, read, split
from fusescope.charts.profile import steps
from fusescope.store import timeline

NCCL = "ncclDevKernel_AllReduce_Sum_f16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def made(rows, gaps=()):
    """rows: (begin, end, step, name, copy), and the stream where there are several."""
    names = sorted({r[3] for r in rows})
    rows = [(*row, 7)[:6] for row in rows]
    columns = np.array([(b, e, 0, line, s, names.index(n)) for b, e, s, n, _, line in rows], np.int64).T
    told, copy = np.zeros(len(rows), bool), np.array([r[4] for r in rows], bool)
    of = Activities(*columns, copy, told, names)
    length, step = (np.array([g[i] for g in gaps], np.int64) for i in (0, 1))
    return split(of, Gaps(length, step, np.zeros(len(gaps), np.int64), ["host"]))


def test_overlapped_streams_count_once_and_parts_add_up():
    found = made(
        [
            (0, 10, 1, "gemm", False),
            (5, 12, 1, "other", False),  # overlapped: 2 of its own
            (8, 20, 1, NCCL, False),  # 4 behind compute, 8 exposed
            (18, 25, 1, "copy", True),  # 5 alone
            (30, 40, 2, "gemm", False),
            (32, 36, 2, NCCL, False),
        ],
        [(5, 2)],
    )
    one, two = found.steps[1], found.steps[2]
    assert one == {"compute_ns": 8, "overlapped_ns": 4, "exposed_ns": 8, "memory_ns": 5, "idle_host_ns": 0}
    assert two == {"compute_ns": 6, "overlapped_ns": 4, "exposed_ns": 0, "memory_ns": 0, "idle_host_ns": 5}
    assert sum(found.whole.values()) == 40 and found.communication == {NCCL: (2, 16)}
    assert found.kernel_ns == 43, "concurrent kernels each"


def test_steps_that_overlap_share_nothing():
    found = made([(0, 10, 1, "a", False), (6, 16, 2, "b", False), (16, 18, ABSENT, "c", False)])
    assert {s: sum(p.values()) for s, p in found.steps.items()} == {1: 10, 2: 6, None: 2}
    bars = steps.rows([{"step": 1, "kernel_ns": 10}, {"step": 2, "kernel_ns": 10}], found.steps)
    assert [(b["step"], b["compute_ns"]) for b in bars] == [(1, 10), (2, 6), (None, 2)]
    assert all("kernel_ns" not in b for b in bars), "a sum over concurrent kernels is no part of a step"
    assert list(steps.bars(bars).data[0].y) == ["step 1", "step 2", "no step"]


@pytest.mark.parametrize("seed", range(3))
def test_random_activities_add_up_to_their_span(seed):
    rng = np.random.default_rng(seed)
    begin = rng.integers(0, 1000, 200)
    rows = [
        (int(b), int(b + rng.integers(0, 30)), int(b // 250), ("k", NCCL, "m")[i % 3], i % 3 == 2)
        for i, b in enumerate(begin)
    ]
    busy = np.zeros(1100, bool)
    kinds = {name: np.zeros(1100, bool) for name in ("k", NCCL, "m")}
    for b, e, _, name, _ in rows:
        busy[b:e] = kinds[name][b:e] = True
    whole = made(rows).whole
    assert sum(whole.values()) == busy.sum()
    assert whole["compute_ns"] == (kinds["k"] & ~kinds[NCCL]).sum()
    assert whole["overlapped_ns"] == (kinds["k"] & kinds[NCCL]).sum()
    assert whole["exposed_ns"] == (kinds[NCCL] & ~kinds["k"]).sum()
    assert whole["memory_ns"] == (kinds["m"] & ~kinds["k"] & ~kinds[NCCL]).sum()


def test_an_imported_trace_adds_up_to_its_span(tmp_path):
    events = [x("user_annotation", f"ProfilerStep#{n}", 1000 * n, 900) for n in (1, 2)]
    for n in (1, 2):
        at = 1000 * n
        events += [launch(10 * n + i, at + 10 + i) for i in range(3)]
        events += [
            kernel(10 * n, at + 20, 100),
            kernel(10 * n + 1, at + 60, 100, name=NCCL, stream=9),
            kernel(10 * n + 2, at + 200, 50),
        ]
    run = tmp_path / "run"
    run.mkdir()
    summary, _ = load(trace(tmp_path / "t.json", events), run / "artifacts")
    found = read(timeline.device_activities(run))
    (device,) = summary["devices"]
    assert sum(found.whole.values()) == device["last_ns"] - device["first_ns"]
    assert device["busy_ns"] == sum(v for k, v in found.whole.items() if not k.startswith("idle"))
    assert found.whole["exposed_ns"] == 80_000 and found.whole["overlapped_ns"] == 120_000
    assert found.steps[1]["compute_ns"] == 90_000 and found.communication[NCCL] == (2, 200_000)


def test_a_run_without_kernels_has_none(tmp_path):
    (tmp_path / "artifacts").mkdir()
    assert read(timeline.device_activities(tmp_path)) is None


def test_a_bar_names_communication_where_there_is_some():
    with_it = steps.bars([{"step": 1, "compute_ns": 5, "exposed_ns": 5, "dur_ns": 9}])
    assert [bar.name for bar in with_it.data] == ["compute alone", "communication alone"]
    assert [bar.name for bar in steps.bars([{"step": 1, "compute_ns": 5}]).data] == ["kernels"]
    assert [bar.name for bar in steps.bars([{"step": 1, "dur_ns": 5}]).data] == ["host time"]


def three_streams():
    """A trace of another tool: no launches, grids or registers. Of 400 µs, streams 7, 13 and 20 are busy for
    260, 250 and 190; kernels of two run at once for 160."""
    args = lambda stream: {"device": 0, "stream": stream}  # noqa: E731
    spans = [(7, 0, 100, "gemm"), (7, 100, 200, "gemm"), (7, 340, 400, "gemm")]
    spans += [(13, 60, 160, "softmax"), (13, 250, 400, "softmax")]
    events = [x("kernel", name, b, e - b, args(stream)) for stream, b, e, name in spans]
    events.append(x("gpu_memcpy", "Memcpy HtoD", 190, 150, args(20)))
    events.append(x("gpu_memset", "Memset", 350, 40, args(20)))
    return events


def test_streams_are_busy_by_their_union_and_what_runs_at_once_is_told(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    _, rows = load(trace(tmp_path / "t.json", three_streams()), run / "artifacts")
    (one,) = read(timeline.device_activities(run)).concurrency
    assert [(s.number, s.busy_ns, s.events) for s in one.streams] == [
        (7, 260_000, 3),
        (13, 250_000, 2),
        (20, 190_000, 2),
    ]
    assert one.span_ns == 400_000 and one.kernels_ns == 160_000
    assert one.copies_ns == 10_000 + 90_000 + 40_000, "190 to 200, 250 to 340, 350 to 390"
    gemm = next(r for r in rows["kernel_summary"] if r["name"] == "gemm")
    assert gemm["calls"] == 3 and gemm["launches"] is None, "its launch configurations are not in the file"


def test_one_stream_a_device_is_no_concurrency():
    assert made([(0, 10, 1, "a", False), (5, 20, 1, "b", False)]).concurrency == ()
    one, two = (0, 10, 1, "a", False, 7), (5, 20, 1, "b", False, 8)
    (found,) = made([one, two, (6, 9, 1, "a", False, 7)]).concurrency
    assert (found.kernels_ns, [s.busy_ns for s in found.streams]) == (5, [15, 10])
