"""Records of several processes become one: means of medians, intervals that hold for a further process."""

import dataclasses
import math

import pytest

from fusescope.core.records import Accuracy, Rate, Record, Speedup, Time, Times
from fusescope.core.verdict import LEFT_OPEN
from fusescope.measure.compare import Stop
from fusescope.measure.joined import join


def record(impl, ms, base, error=1e-6, converged=True, **more):
    time = Time(ms, ms * 0.999, ms * 1.001, 50, converged)
    ratio = base / ms
    return Record(
        "add",
        impl,
        {"n": 8},
        "float32",
        "cpu",
        "ok",
        accuracy=Accuracy(error, error, 1.0, "float64"),
        time_ms=Times(first=ms * 10, eager=time),
        speedup=Speedup("eager", ratio, ratio * 0.999, ratio * 1.001, converged=converged),
        tflops=Rate(1 / ms, None),
        gbps=2 / ms,
        **more,
    )


def processes(pairs, **more):
    """One for each (ms of the baseline, ms of the other)."""
    return [
        {(r.case_key, r.impl): r for r in (record("base", b, b), record("mine", m, b, **more))}
        for b, m in pairs
    ]


def test_times_ratio_and_rates_are_of_the_same_means():
    base, mine = join(processes([(2.0, 1.0), (2.1, 1.02), (1.9, 0.99), (2.0, 1.01)]), "base", Stop())
    assert base.ms == pytest.approx((2.0 * 2.1 * 1.9 * 2.0) ** 0.25)
    assert mine.speedup.median == pytest.approx(base.ms / mine.ms)
    assert mine.speedup.low < mine.speedup.median < mine.speedup.high and mine.speedup.processes == 4
    assert mine.speedup.verdict == "faster" and base.speedup.verdict == "same"
    assert mine.tflops.effective == pytest.approx(1 / mine.ms) and mine.gbps == pytest.approx(2 / mine.ms)
    assert mine.time.n == 200 and mine.time.low < 0.99 and mine.time.high > 1.02
    assert mine.time_ms.first == pytest.approx(10.05)


def test_processes_that_contradict_each_other_are_inconclusive():
    one_for_all = processes([(1.0, 0.95)] * 3)
    assert [r.speedup.verdict for r in join(one_for_all, "base", Stop())][1] == "faster"
    _, mine = join(processes([(1.0, 0.93), (1.0, 1.04), (1.0, 0.95)]), "base", Stop())
    assert mine.speedup.verdict == "inconclusive" and mine.speedup.low < 1 < mine.speedup.high


def test_two_processes_do_not_say_what_a_third_would():
    _, mine = join(processes([(1.0, 0.95), (1.0, 0.94)]), "base", Stop())
    assert mine.speedup.verdict == "inconclusive"


def test_what_failed_once_failed():
    found = processes([(1.0, 0.95)] * 3)
    key = next(k for k in found[1] if k[1] == "mine")
    found[1][key] = Record("add", "mine", {"n": 8}, "float32", "cpu", "wrong", "off by 3")
    base, mine = join(found, "base", Stop())
    assert base.status == "ok" and mine.status == "wrong" and mine.time_ms is None
    assert mine.reason == "in process 2 of 3: off by 3"
    everywhere = [{**p, key: found[1][key]} for p in found]
    assert list(join(everywhere, "base", Stop()))[1].reason == "off by 3"


def test_without_a_baseline_there_is_no_speed_up_and_the_worst_error_stays():
    found = processes([(1.0, 0.95)] * 3, error=1e-5)
    for process in found:
        del process[next(k for k in process if k[1] == "base")]
    (mine,) = join(found, "base", Stop())
    assert mine.speedup is None and mine.accuracy.max_abs == 1e-5
    assert math.isclose(mine.ms, 0.95)


def test_one_process_that_did_not_converge_leaves_all_inconclusive():
    found = processes([(1.0, 0.9)] * 3)
    key = next(k for k in found[0] if k[1] == "mine")
    noisy = found[0][key]
    found[0][key] = dataclasses.replace(noisy, speedup=dataclasses.replace(noisy.speedup, converged=False))
    assert [r.speedup.verdict for r in join(found, "base", Stop())] == ["same", "inconclusive"]


def few_rounds(pairs, n=8):
    """Processes of so few rounds that no interval of theirs, nor a time, is narrow."""
    found = processes(pairs)
    for process in found:
        for key, r in process.items():
            wide = dataclasses.replace(r.time, low=0.85 * r.ms, high=1.2 * r.ms, n=n, converged=False)
            ratio = dataclasses.replace(
                r.speedup, low=0.6 * r.speedup.median, high=1.7 * r.speedup.median, converged=False
            )
            process[key] = dataclasses.replace(
                r, time_ms=dataclasses.replace(r.time_ms, eager=wide), speedup=ratio
            )
    return found


def test_processes_of_few_rounds_that_agree_decide_a_large_difference():
    base, mine = join(few_rounds([(8.22, 1.0), (8.217, 1.0), (8.22, 1.0)]), "base", Stop())
    assert mine.speedup.verdict == "faster" and 7.7 < mine.speedup.low < 7.9 and mine.speedup.high < 8.8
    assert mine.time.converged and not base.time.converged and base.time.n == 24
    _, mine = join(few_rounds([(8.22, 1.0), (8.217, 1.0), (8.22, 1.0)], n=3), "base", Stop())
    ends = (mine.speedup.median / LEFT_OPEN, mine.speedup.median * LEFT_OPEN)
    assert mine.speedup.verdict == "faster" and (mine.speedup.low, mine.speedup.high) == ends, (
        "nine samples are fewer than the ten wanted: a factor of 1.5 is left open"
    )
    base, mine = join(few_rounds([(9.5, 1.0), (6.2, 1.0), (8.22, 1.0)]), "base", Stop())
    assert mine.speedup.verdict == "faster" and not base.time.converged
    assert 2 < mine.speedup.low < 3 and mine.speedup.high > 20, "as far as the processes differ"
    _, mine = join(few_rounds([(1.07, 1.0)] * 3), "base", Stop())
    assert mine.speedup.verdict == "inconclusive", "about as fast: each process has to know it"
