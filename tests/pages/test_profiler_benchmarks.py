"""Gains in the advice are those of benchmarks of the same work, where there are any; else at most."""

import json

import folders
import profiles_on_disk as disk
import pytest
import synthetic
from drawn_page import said
from profiles_on_disk import TRACE

SLOW = disk.OTHER


def benchmark(profiles, case, fast=0.1, slow=0.4):
    rows = [synthetic.ok("v2_blockwise", slow, slow, case), synthetic.ok("v4_scheduled", fast, slow, case)]
    folders.write(profiles, synthetic.run("20261121-120000-bench-dddddd"), rows, samples=False)


@pytest.fixture
def two(profiles):
    """A profile of v2 that waits for the host, and one of v4 with a shorter step."""
    disk.trace(profiles, SLOW)
    disk.trace(profiles, TRACE, disk.SPEC | {"impl": "v4_scheduled"}, scale=0.01)
    faster(profiles)
    return profiles


def faster(profiles):
    """The step of the second one made half as long."""
    path = profiles / TRACE / "artifacts" / "summary.json"
    summary = json.loads((profiles / SLOW / "artifacts" / "summary.json").read_text())
    device = summary["devices"][0]
    device["last_ns"] = device["first_ns"] + (device["last_ns"] - device["first_ns"]) // 2
    path.write_text(json.dumps(summary))


def test_without_a_benchmark_it_is_at_most_and_says_why(draw, two):
    words = said(draw("profiler", run=SLOW).markdown)
    assert "· at most 2.00× as fast" in words
    assert "the true gain is smaller. No benchmark on this device has both at this shape." in words
    assert "Allow for the profiler's own cost" in words


def test_the_nearest_benchmark_is_named_with_its_shape(draw, two):
    benchmark(two, disk.CASE | {"seq": 128, "seq_k": 128})
    words = said(draw("profiler", run=SLOW).markdown)
    assert "at most 2.00" in words and "the nearest, " in words and "128" in words
    assert "3.78× as fast (408 µs → 108 µs)." in words


def test_a_benchmark_of_both_gives_the_gain_and_the_profilers_cost(draw, two):
    benchmark(two, disk.CASE)
    words = said(draw("profiler", run=SLOW).markdown)
    assert "at most 2.00" not in words
    assert "by [a benchmark](" in words and "under the profiler" in words
    assert "408 µs without the profiler" in words


def test_a_gain_that_is_the_profilers_alone_is_not_advised(draw, two):
    benchmark(two, disk.CASE, fast=0.4)
    assert "Run it as" not in said(draw("profiler", run=SLOW).markdown)


def test_the_steps_are_said_where_the_time_is(draw, two):
    at = draw("profiler", run=SLOW)
    assert "on the device, 3 steps" in [m.label for m in at.metric]
    assert "(3 steps)" in said(at.markdown)
