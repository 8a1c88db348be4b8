"""The samplers against callables of known duration. Bounds are from below only: a loaded machine can always
be slower."""

import gc
import json
import time

import pytest
import torch

from fusescope.core.machine import environment
from fusescope.measure.checking import alarm
from fusescope.measure.device import ceilings
from fusescope.measure.timing import timer
from fusescope.ops.base import Cost


def sleeper(seconds):
    return lambda: time.sleep(seconds)


def test_a_known_duration_on_the_cpu():
    sampler = timer.CpuEager(sleeper(0.003))
    samples = sampler.take(4)
    assert len(samples) == 4 and min(samples) >= 3.0 and sampler.mode == "eager" and sampler.cost_ms >= 3.0


@pytest.fixture
def calls_of(monkeypatch):
    """calls_of(ns) -> (a callable whose n-th call takes ns(n) on the timer's clock, its calls so far)."""
    now = [0]
    monkeypatch.setattr(time, "perf_counter_ns", lambda: now[0])

    def make(ns):
        calls = []

        def run():
            calls.append(0)
            now[0] += ns(len(calls))

        return run, calls

    return make


def test_short_calls_are_repeated_inside_a_sample(calls_of):
    run, calls = calls_of(lambda number: 500)
    sampler = timer.CpuEager(run)
    calls.clear()
    samples = sampler.take(2)
    assert len(calls) == 1 + 2 * 100, "a call of 500 ns is repeated until 0.05 ms have passed"
    assert samples == pytest.approx([5e-4, 5e-4])


@pytest.mark.parametrize("disturbed", range(1, 6))
def test_a_short_call_is_known_for_short_on_a_busy_machine(calls_of, disturbed):
    """Its first samples each wait for another process's time slice; a turn then had one sample."""
    run, calls = calls_of(lambda number: 8_000_000 if number <= 2 * disturbed else 24_000)
    sampler = timer.CpuEager(run)
    assert timer.samples_a_turn(sampler.cost_ms) == timer.MOST_A_TURN
    assert sampler.take(1) == pytest.approx([0.024])
    calls.clear()
    sampler.take(1)
    assert len(calls) == 1 + 3, "0.05 ms are three calls"


def test_a_slow_call_is_not_sampled_on_and_on(calls_of):
    run, calls = calls_of(lambda number: 60_000_000)
    timer.CpuEager(run)
    assert len(calls) == 3, "one untimed, two timed"


def test_cold_flushes_before_every_sample_and_outside_it(monkeypatch):
    order, now = [], [0]
    monkeypatch.setattr(time, "perf_counter_ns", lambda: now[0])

    def does(what, ns):
        def step():
            order.append(what)
            now[0] += ns

        return step

    sampler = timer.CpuEager(does("run", 1_000_000), flush=does("flush", 5_000_000))
    order.clear()
    assert sampler.take(3) == [1.0, 1.0, 1.0] and sampler.mode == "eager_cold"
    assert order == ["run"] + ["flush", "run"] * 3
    assert sampler.cost_ms == pytest.approx(6.0), "the flush is in the cost of a sample, not in the sample"


def test_long_calls_are_not_made_twice(monkeypatch):
    now, calls = [0], []
    monkeypatch.setattr(time, "perf_counter_ns", lambda: now[0])

    def long():
        calls.append(1)
        now[0] += int(2 * timer.LONG_MS * 1e6)

    sampler = timer.CpuEager(long)
    calls.clear()
    sampler.take(2)
    assert len(calls) == 2


def test_the_collector_rests_while_samples_are_taken():
    seen = []
    timer.CpuEager(lambda: seen.append((gc.isenabled(), torch.is_grad_enabled()))).take(1)
    assert set(seen) == {(False, False)} and gc.isenabled() and torch.is_grad_enabled()
    with pytest.raises(ZeroDivisionError):
        timer.CpuEager(lambda: 1 / 0)
    assert gc.isenabled()


def test_the_first_call_includes_making():
    def make():
        time.sleep(0.004)
        return lambda: time.sleep(0.003) or "result"

    run, out, ms = timer.first_call(make, "cpu")
    assert out == "result" and ms >= 7.0 and run() == "result"


def test_turns_are_short_but_hold_a_sample():
    assert timer.samples_a_turn(1000.0) == 1
    assert timer.samples_a_turn(timer.TURN_MS / 4) == 4
    assert timer.samples_a_turn(1e-9) == timer.MOST_A_TURN


def test_a_flush_is_larger_than_the_cache():
    assert timer.Flush("cpu", 1 << 20)._buffer.nbytes == 4 << 20
    assert timer.Flush("cpu", None)._buffer.nbytes >= 32 << 20
    timer.Flush("cpu", 1 << 20)()


def test_a_wait_for_a_cpu_lowers_no_ceiling(monkeypatch):
    waits = sleeper(0.02)  # on no CPU, as behind other load
    assert 0 < ceilings._best_s(waits, "cpu") < 0.01
    monkeypatch.setattr(ceilings, "_counts_microseconds", lambda: False)
    assert ceilings._best_s(waits, "cpu") >= 0.02


@pytest.mark.parametrize("stands", [0.0, 1e-9])
def test_a_clock_of_cpu_time_that_stands_still_raises_no_ceiling(monkeypatch, stands):
    """Over one call in a hundred thousand where a hypervisor takes time: its CPU time was 0, and so a rate
    divided by it."""
    calls = 0

    def timed(run):
        nonlocal calls
        run()
        calls += 1
        return 2e-5, stands if calls % 3 == 0 else 1e-5

    monkeypatch.setattr(ceilings, "_timed", timed)
    assert ceilings._best_s(lambda: None, "cpu", inner=2, seconds=0.01) == 5e-6
    pieces = torch.zeros(5 * ceilings._PIECE)
    assert ceilings._piece_s(lambda a, b: None, pieces, pieces) == 1e-5


@pytest.mark.long
def test_ceilings_are_measured_kept_and_raised(monkeypatch, tmp_path):
    monkeypatch.setenv("FUSESCOPE_RUNTIME", str(tmp_path))

    def best(
        run, device, inner=1, seconds=0
    ):  # a product, which has seconds of its own, so slow that no larger one is tried
        run()
        return 4e-2 if seconds else 1e-3

    monkeypatch.setattr(ceilings, "_best_s", best)
    first = ceilings.measure("cpu", ("float32",))
    assert first["copy_gbps"] > 0 and first["read_gbps"] > 0 and first["l2_gbps"] >= first["copy_gbps"]
    assert first["matrix_tflops"].keys() == first["vector_tflops"].keys() == {"float32"}
    assert first["device_name"] == environment.cpu_name() and set(first["how"]) <= set(first)
    monkeypatch.setattr(ceilings, "_best_s", lambda *a, **k: pytest.fail("it is in the cache"))
    assert ceilings.measure("cpu", ("float32",)) == first
    monkeypatch.setattr(ceilings, "_best_s", best)
    both = ceilings.measure("cpu", ("bfloat16",))
    assert set(both["matrix_tflops"]) == {"float32", "bfloat16"} and both["copy_gbps"] == first["copy_gbps"]
    monkeypatch.setattr(ceilings, "_best_s", lambda run, device, inner=1, seconds=0: 2e-3)
    assert ceilings.measure("cpu", ("float32",), refresh=True)["copy_gbps"] == first["copy_gbps"], (
        "a slower moment lowers nothing"
    )
    monkeypatch.setattr(ceilings, "_best_s", lambda run, device, inner=1, seconds=0: 5e-4)
    assert ceilings.measure("cpu", ("float32",), refresh=True)["copy_gbps"] == pytest.approx(
        2 * first["copy_gbps"]
    )
    (tmp_path / f"user-{__import__('os').getuid()}" / "ceilings.json").write_text("torn {")
    assert ceilings.measure("cpu", ("float32",))["copy_gbps"] == pytest.approx(2 * first["copy_gbps"])


@pytest.mark.long
def test_real_ceilings_of_this_cpu():
    found = ceilings.measure("cpu", ("float32",))
    assert 0.1 < found["copy_gbps"] < 5000 and 0.001 < found["matrix_tflops"]["float32"] < 500
    json.dumps(found, allow_nan=False)


FIGURES = {
    "copy_gbps": 100.0,
    "read_gbps": 80.0,
    "l2_gbps": 1000.0,
    "matrix_tflops": {"float16": 50.0},
    "vector_tflops": {"float16": 5.0},
}


@pytest.mark.parametrize(
    "cost, cold, l2, expected",
    [
        (Cost(1, 1, 1e9, 0), True, 50_000_000, 10.0),  # all from memory
        (Cost(1, 1, 4e7, 0), False, 50_000_000, 0.04),  # all from L2
        (Cost(1, 1, 1e9, 0), False, 50_000_000, 9.5 + 0.05),  # what fits from L2, the rest from memory
        (Cost(5e9, 1e10, 1, 1), False, None, 1.0),  # effective FLOP on the vector units
        (Cost(5e9, 1e10, 1, 1, "matrix"), False, None, 0.1),
    ],
)
def test_the_bound_of_the_alarm(cost, cold, l2, expected):
    assert alarm.bound_ms(cost, "float16", cold, FIGURES, l2)[0] == pytest.approx(expected)


def test_the_alarm_names_both_numbers():
    bound = alarm.bound_ms(Cost(1, 1, 1e9, 0), "float16", True, FIGURES, None)
    assert alarm.impossible(9.01, "graph_cold", bound) is None
    assert (
        "graph_cold took 8.9 ms, but the hardware needs 10 ms (1e+09 bytes at 100 GB/s)"
        in alarm.impossible(8.9, "graph_cold", bound)
    )


@pytest.mark.parametrize("flushed", [False, True])
def test_the_last_result_is_looked_at_outside_the_time(monkeypatch, flushed):
    """Looking takes 9 ms here, what precedes it 5 ms, and neither is in a sample; releasing the result takes
    1 ms and is in the last one."""
    now, looked = [0], []
    monkeypatch.setattr(time, "perf_counter_ns", lambda: now[0])

    class Result:
        def __del__(self):
            now[0] += 1_000_000

    def run():
        now[0] += 2_000_000
        return Result()

    class Look:
        def __call__(self, out):
            looked.append(type(out))
            now[0] += 9_000_000

        def prepared(self, call):
            now[0] += 5_000_000
            return False

    sampler = timer.CpuEager(run, flush=(lambda: None) if flushed else None)
    assert sampler.take(3, Look()) == [3.0, 3.0, 3.0] and looked == [Result]
