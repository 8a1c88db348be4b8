"""Figures against those of Holistic Trace Analysis on its own test traces (data/hta.json): temporal
breakdown, overlap of communication and compute, idle time of streams by cause.

data/sampled.rank*.json.gz are HTA's tests/data/trace_filter (two of 128 ranks, MIT, Copyright (c) Meta
Platforms), cut to what ran on the device, its launches, steps and nccl ranges; HTA gives the same for the
whole files.
"""

import json
from pathlib import Path

import pytest

from fusescope.analysis.profile import device_time
from fusescope.analysis.ranks import breakdown
from fusescope.core import paths
from fusescope.profiling.chrome import importer
from fusescope.profiling.ranks import importer as many
from fusescope.profiling.ranks import read
from fusescope.store import timeline

HERE = Path(__file__).parent / "data"
HTA = json.loads((HERE / "hta.json").read_text())
SHARED = paths.ROOT.parent / "shared" / "data" / "traces"
CATEGORIES = {"host_wait": "host_wait_ns", "kernel_wait": "kernel_wait_ns", "other": "other_ns"}


def agrees(of, theirs: dict, whole: bool = True, tolerance: float = 0.5) -> None:
    """tolerance: µs; HTA's times are floats of µs, good to a quarter where they count from 1970."""
    ours = breakdown.times(of)

    def same(value, expected):
        assert value / 1000 == pytest.approx(expected, abs=tolerance)

    if whole:
        same(ours["idle_ns"], theirs["idle_us"])
        same(ours["compute_ns"] + ours["overlapped_ns"], theirs["compute_us"])
        same(ours["exposed_ns"] + ours["memory_ns"], theirs["non_compute_us"])
        same(ours["span_ns"], theirs["kernel_us"])
        if theirs["overlap_percent"] is not None:
            share = 100 * ours["overlapped_ns"] / ours["communication_ns"]
            assert share == pytest.approx(theirs["overlap_percent"], abs=0.005)
    streams = {str(row["stream"] & 0xFFFFFFFF): row for row in breakdown.idle_by_stream(of)}
    for stream, idle in theirs["streams"].items():
        for category, key in CATEGORIES.items():
            same(streams[stream][key], idle.get(category, 0.0))


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """The two ranks imported as one profile: (summary, folder)."""
    out = tmp_path_factory.mktemp("hta")

    def target(name):
        file = out / "artifacts" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        return file

    files = {r: HERE / f"sampled.rank{r}.json.gz" for r in (0, 1)}
    return many.load(files, target, lambda share, text: None), out


@pytest.mark.parametrize("rank", [0, 1])
def test_two_ranks_with_nccl_are_equal(ranks, rank):
    of = read.activities(ranks[1] / "artifacts" / "ranks" / str(rank), True)
    agrees(of, HTA["sampled"][str(rank)], tolerance=0.001)


@pytest.mark.parametrize("rank", [0, 1])
def test_the_parts_of_one_profile_are_those_of_its_rank(ranks, rank):
    path = ranks[1] / "artifacts" / "ranks" / str(rank)
    found = device_time.read(timeline.device_activities(path))
    times = breakdown.times(read.activities(path, True))
    assert {part: found.whole[part] for part in device_time.BUSY} == {p: times[p] for p in device_time.BUSY}
    assert sum(found.whole.values()) == times["span_ns"] and found.whole["exposed_ns"]


def test_what_the_two_ranks_share_is_matched_and_what_cannot_be_is_said(ranks):
    summary = ranks[0]
    assert summary["rows"]["collectives"] == 10
    assert any("2 of the job's 128 ranks" in n for n in summary["notes"])
    assert any("were not open on all ranks at once" in n for n in summary["notes"])


@pytest.mark.skipif(not SHARED.is_dir(), reason=f"no traces at {SHARED}")
@pytest.mark.parametrize(
    ("name", "whole"),
    [("amd_mi250", True), ("alexnet_a100", False)],  # HTA counts the latter's cuda_sync events as busy
)
def test_traces_of_one_rank_are_equal(name, whole, tmp_path):
    (tmp_path / "artifacts").mkdir()
    importer.load(SHARED / f"{name}.json.gz", lambda n: tmp_path / "artifacts" / n)
    agrees(read.activities(tmp_path, True), HTA[name]["0"], whole)
