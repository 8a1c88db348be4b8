"""The binned time line against a count by hand, and the tree of where the time went."""

import random

import pytest
from made_up import kernel, launch, load, op, trace, x

from fusescope.store import timeline


@pytest.fixture
def run(tmp_path):
    """A profile with 300 kernels that partly overlap on one stream, a copy there, and operators on two
    levels."""
    dice, events = random.Random(3), [op("outer", 0, 900), op("inner", 10, 100), op("inner", 200, 50)]
    for i in range(300):
        events.append(
            kernel(i, dice.randrange(0, 900_000) / 1000, dice.randrange(0, 9000) / 1000, f"k{i % 5}")
        )
    events.append(x("gpu_memcpy", "Memcpy HtoD", 950, 20, {"device": 0, "stream": 7}))
    events.append(kernel(999, 100, 5, "elsewhere", stream=20))
    load(trace(tmp_path / "t.json", events), tmp_path / "artifacts")
    return tmp_path


def test_lanes_are_streams_and_levels_of_threads(run):
    found = timeline.lanes(run)
    threads = ["CPU thread 1, depth 0", "CPU thread 1, depth 1"]
    assert list(found) == ["GPU 0 stream 7", "GPU 0 stream 20", *threads]
    assert found["GPU 0 stream 7"]["tables"] == ["kernels", "copies"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("begin", "end", "bins"), [(None, None, 50), (100_000, 300_000, 7), (899_999, 960_001, 1000), (0, 3, 5)]
)
def test_bins_are_those_counted_by_hand(run, begin, end, bins):
    got = timeline.view(run, timeline.lanes(run)["GPU 0 stream 7"], begin, end, bins)
    begin, end = got["begin_ns"], got["end_ns"]
    covered = bytearray(end - begin)
    for e in got["events"]:
        for t in range(max(e["ts_ns"], begin), min(e["ts_ns"] + e["dur_ns"], end)):
            covered[t - begin] = 1
    edges = [begin + i * (end - begin) // bins for i in range(bins + 1)]
    for i in range(bins):
        part = covered[edges[i] - begin : edges[i + 1] - begin]
        assert got["bins"]["busy"][i] == pytest.approx(sum(part) / len(part) if part else 0, abs=1e-6)
    assert sum(got["bins"]["count"]) == len(got["events"])


def test_names_are_those_of_the_longest(run):
    got = timeline.view(run, timeline.lanes(run)["CPU thread 1, depth 1"], 0, 300_000, 3)
    assert got["bins"]["name"] == ["inner", None, "inner"] and [e["dur_ns"] for e in got["events"]] == [
        100_000,
        50_000,
    ]


def test_many_events_are_given_in_bins_alone(tmp_path):
    load(trace(tmp_path / "t.json", [kernel(i, i, 0.5) for i in range(2500)]), tmp_path / "artifacts")
    lane = timeline.lanes(tmp_path)["GPU 0 stream 7"]
    whole, part = timeline.view(tmp_path, lane), timeline.view(tmp_path, lane, 0, 100_000)
    assert (
        whole["events"] is None
        and sum(whole["bins"]["count"]) == 2500
        and whole["bins"]["busy"][400] == pytest.approx(0.5, abs=0.2)
    )
    assert len(part["events"]) == 100


def test_bad_spans(run):
    lane = timeline.lanes(run)["GPU 0 stream 7"]
    with pytest.raises(ValueError, match="at least 1 bin"):
        timeline.view(run, lane, bins=0)
    with pytest.raises(ValueError, match="ends after it begins"):
        timeline.view(run, lane, 5, 5)


def test_the_tree_holds_all_of_the_time(tmp_path):
    events = [
        x("user_annotation", "module: net.0", 0, 50),
        op("mm", 1, 20),
        launch(1, 5),
        kernel(1, 10, 8, "gemm"),
        kernel(9, 60, 3, "lost"),
    ]
    load(trace(tmp_path / "t.json", events), tmp_path / "artifacts")
    assert timeline.tree(tmp_path) == [
        {"path": ("net.0", "mm", "gemm"), "ns": 8000, "calls": 1},
        {"path": ("(no module)", "(no operator)", "lost"), "ns": 3000, "calls": 1},
    ]
    assert timeline.tree(tmp_path, ("name",))[0] == {"path": ("gemm",), "ns": 8000, "calls": 1}


def test_the_tree_of_a_trace_without_a_gpu_is_that_of_its_operators(run):
    found = timeline.tree(run, ("name",), "operators", "self_ns")
    assert {row["path"]: row["ns"] for row in found} == {("outer",): 750_000, ("inner",): 150_000}
    with pytest.raises(ValueError, match="kernels have"):
        timeline.tree(run, ("nope",))


def test_a_series_keeps_the_peaks(tmp_path):
    dice, events = random.Random(1), []
    for i in range(5000):
        args = {
            "Addr": i,
            "Bytes": 1,
            "Total Allocated": dice.randrange(1000),
            "Total Reserved": 2000,
            "Device Type": 1,
            "Device Id": i % 2,
        }
        events.append({"ph": "i", "name": "[memory]", "ts": i, "pid": 1, "tid": 1, "args": args})
    load(trace(tmp_path / "t.json", [kernel(1, 0, 1), *events]), tmp_path / "artifacts")
    assert timeline.distinct(tmp_path, "memory", "device_type", "device_id") == [(1, 0), (1, 1)]
    mine = [e["args"]["Total Allocated"] for e in events if e["args"]["Device Id"] == 1]
    times, values = timeline.series(tmp_path, "memory", "allocated", {"device_id": 1}, points=100)
    assert len(times) == 100 and max(values) == max(mine) and times == sorted(times)
    assert values == [max(mine[25 * n : 25 * n + 25]) for n in range(100)]
    with pytest.raises(ValueError, match="not nope"):
        timeline.series(tmp_path, "memory", "nope")


def test_lanes_of_two_tables_share_their_names(tmp_path):
    events = [
        kernel(1, 0, 5, "k"),
        x("gpu_memcpy", "Memcpy HtoD", 2, 20, {"device": 0, "stream": 7}),
        kernel(2, 40, 0, "empty"),
    ]
    load(trace(tmp_path / "t.json", events), tmp_path / "artifacts")
    lane = timeline.events(tmp_path, timeline.lanes(tmp_path)["GPU 0 stream 7"])
    assert [lane.name(n) for n in range(3)] == ["k", "Memcpy HtoD", "empty"] and lane.reach[-1] - lane.starts[
        0
    ] == 40_000
    got = timeline.window(lane, bins=4)
    assert got["count"] == 2 and [e["name"] for e in got["events"]] == ["k", "Memcpy HtoD"], (
        "what takes no time at the very end is beyond it"
    )
