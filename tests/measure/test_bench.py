"""A comparison from specification to records, on real tensor addition on the CPU."""

import itertools
import json
import time
from types import SimpleNamespace

import pytest
import torch

from fusescope.core.errors import BuildError, Cancelled
from fusescope.core.records import BenchSpec, Record
from fusescope.core.reporter import Collect
from fusescope.measure import bench, failures
from fusescope.measure.checking import alarm
from fusescope.measure.device import ceilings
from fusescope.measure.timing import timer


@pytest.fixture
def own_time(monkeypatch):
    """The clock of the timer moves 1 µs at each look and as long as somebody sleeps: what is slower is so
    however loaded the machine is."""
    now = itertools.count(0, 1000)
    slept = []
    monkeypatch.setattr(
        timer, "time", SimpleNamespace(perf_counter_ns=lambda: next(now) + round(1e9 * sum(slept)))
    )
    monkeypatch.setattr(time, "sleep", slept.append)


@pytest.mark.slow
@pytest.mark.usefixtures("own_time")
def test_a_comparison_on_the_cpu(quick, wrong):
    slower = wrong("slower")
    reporter = quick([slower, "eager"], cases=({"n": 1000}, {"n": 50_000}), cache="both")
    assert [(r.case["n"], r.impl) for r in reporter.records] == [
        (n, i) for n in (1000, 50_000) for i in (slower, "eager")
    ]
    for r in reporter.records:
        assert r.status == "ok", r.reason
        assert r.device == "cpu" and r.dtype == "float32" and not r.throttled
        t = r.time_ms
        assert t.first > 0 and t.graph is None and t.graph_cold is None
        assert t.eager.low <= t.eager.median <= t.eager.high and t.eager.n >= 5 and t.eager_cold.n >= 5
        assert r.accuracy.reference == "float64" and r.resources is None and r.speedup.of == "eager"
        assert r.gbps == pytest.approx(12 * r.case["n"] / t.eager.median / 1e6)
        assert r.tflops.effective == r.tflops.executed == pytest.approx(r.case["n"] / t.eager.median / 1e9)
    slow, base = reporter.records[:2]
    assert slow.speedup.verdict == "slower" and slow.speedup.median < 0.01
    assert slow.speedup.low <= slow.speedup.median == base.time_ms.eager.median / slow.time_ms.eager.median
    assert len(slow.source_hash) == 16
    assert (base.speedup.median, base.speedup.low, base.speedup.high, base.speedup.verdict) == (
        1.0,
        1.0,
        1.0,
        "same",
    )
    assert slow.time_ms.eager.median > 2, "it sleeps two milliseconds"


def test_records_and_samples_survive_json(quick, wrong):
    reporter = quick([wrong("right"), wrong("off_by_one"), "eager"], cache="both")
    for r in reporter.records:
        assert Record.from_json(json.loads(json.dumps(r.to_json(), allow_nan=False))) == r
    for key, impl, mode, ms, state in reporter.raw:
        record = next(r for r in reporter.records if (r.case_key, r.impl) == (key, impl))
        assert getattr(record.time_ms, mode).n == len(ms)
        assert len(ms) % len(state) == 0 and all(x > 0 for x in ms) and all("faults" in s for s in state)
    assert {(impl.rpartition(":")[2], mode) for _, impl, mode, _, _ in reporter.raw} == {
        (impl, mode) for impl in ("right", "eager") for mode in ("eager", "eager_cold")
    }
    json.dumps(reporter.facts, allow_nan=False)
    assert (
        reporter.facts["device"] == "cpu"
        and reporter.facts["ceilings"]["copy_gbps"]
        and reporter.facts["sources"]
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "cache, modes", [("warm", {"eager"}), ("cold", {"eager_cold"}), ("both", {"eager", "eager_cold"})]
)
def test_only_what_was_asked_is_taken(quick, cache, modes):
    (record,) = quick(["eager"], cache=cache).records
    assert {m for m in ("eager", "eager_cold", "graph", "graph_cold") if getattr(record.time_ms, m)} == modes
    assert record.speedup.of == ("eager_cold" if cache == "cold" else "eager")


@pytest.mark.slow
@pytest.mark.parametrize(
    "function, status, says",
    [
        ("unsupported", "unsupported", "sizes that are odd are not supported, only even ones"),
        ("out_of_memory", "oom", "out of memory: OutOfMemoryError: CUDA out of memory"),
        ("breaks", "error", "RuntimeError: an index ran out of range"),
        ("breaks_on_strides", "error", "on non-contiguous inputs: RuntimeError: view size is not compatible"),
    ],
)
def test_failures_are_results_and_the_others_go_on(quick, wrong, function, status, says):
    name = wrong(function)
    reporter = quick([name, "eager"], cases=({"n": 500}, {"n": 501}))
    for n in (500, 501):
        bad, good = (r for r in reporter.records if r.case["n"] == n)
        assert (
            (bad.impl, bad.status) == (name, status)
            and bad.reason.startswith(says)
            and "\n" not in bad.reason
        )
        assert good.status == "ok" and good.speedup is not None


def test_memory_that_ends_while_sampling_is_a_result(quick, wrong):
    bad, good = quick([wrong("out_of_memory_later"), "eager"]).records
    assert bad.status == "oom" and bad.time_ms is None and good.status == "ok"


def test_a_refusal_of_strides_is_said_and_is_no_error(quick, wrong):
    reporter = quick([wrong("refuses_strides"), "eager"])
    assert [r.status for r in reporter.records] == ["ok", "ok"]
    assert any(
        "does not take non-contiguous inputs: only contiguous tensors are taken" in line
        for line in reporter.lines
    )


def test_a_kernel_of_another_device_is_unsupported(quick):
    from fusescope.core.sources import families

    cuda = next(v.name for v in families()["add"].variants if v.device == "cuda")
    record = quick([cuda, "eager"]).records[0]
    assert record.status == "unsupported" and "CUDA kernel; the device is cpu" in record.reason


def test_without_a_right_baseline_there_are_times_but_no_speedups(quick, wrong):
    reporter = quick(["eager", wrong("off_by_one")], baseline=wrong("off_by_one"))
    good, bad = reporter.records
    assert bad.status == "wrong" and good.status == "ok" and good.time_ms.eager and good.speedup is None
    assert any("no speed-ups for this case: the baseline" in line for line in reporter.lines)


def test_a_baseline_that_was_not_listed_is_measured_too(quick, wrong):
    assert [r.impl for r in quick([wrong("right")], baseline="eager").records] == [wrong("right"), "eager"]


def test_our_kernel_and_auto(quick):
    ours, auto, eager = quick(["cpu", "auto", "eager"], cases=({"n": 30_000},)).records
    assert [ours.status, auto.status, eager.status] == ["ok"] * 3, (ours.reason, auto.reason)
    assert ours.source_hash and ours.backend == auto.backend == "cpu"


def test_kernels_that_do_not_build_are_errors_beside_their_peers(quick, monkeypatch):
    from fusescope import kernels

    def fails(device_type, *given):
        raise BuildError("g++ is missing", log="the compiler's words")

    monkeypatch.setattr(kernels, "load", fails)
    reporter = quick(["cpu", "eager"])
    ours, eager = reporter.records
    assert (ours.status, ours.reason) == (
        "error",
        "the kernels could not be built: g++ is missing",
    ) and eager.status == "ok"
    assert any("the compiler's words" in line for line in reporter.lines)


@pytest.mark.slow
def test_what_has_a_record_is_not_measured_again(quick, wrong):
    name = wrong("right")
    first = quick([name, "eager"], cases=({"n": 100}, {"n": 200}))
    kept = [r for r in first.records if not (r.case["n"] == 200 and r.impl == name)]
    again = Collect()
    again.records.extend(kept)
    quick([name, "eager"], cases=({"n": 100}, {"n": 200}), reporter=again)
    (new,) = again.records[len(kept) :]
    assert (new.case["n"], new.impl) == (200, name) and new.speedup is not None, (
        "the baseline was measured again as a partner"
    )
    assert {(impl, mode) for _, impl, mode, _, _ in again.raw} == {(name, "eager")}, (
        "but without a second record or samples"
    )
    assert again.steps[-1][0] == again.steps[-1][1]
    quick([name, "eager"], cases=({"n": 100}, {"n": 200}), reporter=again)
    assert len(again.records) == 4


def test_a_baseline_that_crashed_is_not_tried_again(quick, wrong):
    first = quick(["eager"], baseline="eager")
    crashed = Record(
        "add", "eager", first.records[0].case, "float32", "cpu", "crashed", "SIGSEGV (Segmentation fault)"
    )
    again = Collect()
    again.records.append(crashed)
    said = []
    again.doing = lambda case_key, impl, deadline_s: said.append(impl)
    quick(["eager", wrong("right")], baseline="eager", reporter=again)
    assert [r.impl for r in again.records] == ["eager", wrong("right")] and "eager" not in said
    assert again.records[1].status == "ok" and again.records[1].speedup is None
    assert any(
        "no speed-ups for this case: the baseline eager is no partner any more" in line
        for line in again.lines
    )


def test_a_stop_keeps_what_is_finished(quick, wrong):
    class Stopping(Collect):
        def record(self, record):
            super().record(record)
            self.cancelled = len(self.records) == 2

    reporter = Stopping()
    with pytest.raises(Cancelled):
        quick([wrong("right"), "eager"], cases=({"n": 100}, {"n": 200}), reporter=reporter)
    assert [r.case["n"] for r in reporter.records] == [100, 100]


def test_a_stop_works_between_samples(quick):
    class Stopping(Collect):
        checks = 0

        def check(self):
            self.checks += 1
            if self.checks > 8:
                raise Cancelled

    reporter = Stopping()
    with pytest.raises(Cancelled):
        quick(["eager"], reporter=reporter, budget_s=60.0, precision=1e-9)
    assert reporter.records == []


@pytest.mark.slow
def test_progress_counts_to_the_end_with_an_eta(quick, wrong):
    steps = quick(
        [wrong("right"), wrong("unsupported"), "eager"], cases=({"n": 100}, {"n": 200}), cache="both"
    ).steps
    done = [s[0] for s in steps]
    assert steps[0][:3] == (0, 18, "starting") and done == sorted(done) and steps[-1][:2] == (18, 18)
    assert all(s[3] >= 0 for s in steps) and steps[-1][3] == 0
    assert any("case 2 of 2: checking eager" in s[2] for s in steps)


def test_progress_moves_with_the_rounds_of_a_long_step(quick, monkeypatch):
    monkeypatch.setattr(bench, "_EVERY_S", 0.0)
    said = [s[2] for s in quick(["eager"]).steps]
    assert any("round 2" in text for text in said), said


def test_dangerous_steps_are_announced(quick, wrong):
    said = []

    class Listening(Collect):
        def doing(self, case_key, impl, deadline_s):
            said.append((impl, deadline_s))

    quick([wrong("right"), "eager"], reporter=Listening(), case_deadline_s=12.0)
    assert {impl for impl, _ in said} == {wrong("right"), "eager"} and {d for _, d in said} == {12.0}


def test_faster_than_the_hardware_is_an_error(quick, known_ceilings, monkeypatch):
    known_ceilings.update(copy_gbps=1e-3, read_gbps=1e-3, l2_gbps=1e-3)
    asked = []
    measure = ceilings.measure
    monkeypatch.setattr(
        ceilings, "measure", lambda d, t, refresh=False: (asked.append(refresh), measure(d, t))[1]
    )
    reporter = quick(["eager"])
    (record,) = reporter.records
    assert record.status == "error" and record.time_ms is None and record.accuracy is not None
    assert "ms, but the hardware needs 12 ms (1.2e+04 bytes" in record.reason and "is wrong" in record.reason
    assert asked.count(True) == alarm.CEILING_RETRIES and not reporter.raw


def test_an_alarm_that_a_fresh_measurement_explains_is_none(quick, known_ceilings, monkeypatch):
    low = dict(known_ceilings, copy_gbps=1e-3, read_gbps=1e-3, l2_gbps=1e-3)
    monkeypatch.setattr(
        ceilings, "measure", lambda d, t, refresh=False: dict(known_ceilings) if refresh else low
    )
    reporter = quick(["eager"])
    assert reporter.records[0].status == "ok" and reporter.facts["ceilings"]["copy_gbps"] == 1e9


@pytest.mark.parametrize("variable", [bench.PROFILED, "NSYS_PROFILING_SESSION_ID"])
def test_under_a_profiler_nothing_is_timed(quick, wrong, monkeypatch, variable):
    monkeypatch.setenv(variable, "1")
    reporter = quick(["eager", wrong("off_by_one")])
    assert reporter.records == [] and reporter.raw == []
    assert any("eager is correct; not timed" in line for line in reporter.lines)
    assert any("off_by_one is wrong" in line for line in reporter.lines)


@pytest.mark.parametrize(
    "change, says",
    [
        ({"op": "sub"}, "unknown operator 'sub'; known: "),
        ({"impls": ("fast",)}, "no implementation 'fast'; it has "),
        ({"impls": ("nowhere.py:f",)}, "no file nowhere.py"),
        ({"dtype": "int8"}, "add takes float32, float16, bfloat16, not 'int8'"),
        ({"cases": ({"n": 0},)}, "n must be an integer from 1 to"),
        ({"cases": ({"m": 1},)}, "m"),
        ({"cache": "tepid"}, "cache is warm, cold or both, not 'tepid'"),
        ({"device": "cuda:7"}, "there is no device cuda:7 here"),
    ],
)
def test_bad_input_is_one_sentence(known_ceilings, change, says):
    spec = {"op": "add", "impls": ("eager",), "cases": ({"n": 10},), "baseline": "eager"} | change
    with pytest.raises(ValueError) as caught:
        bench.run(BenchSpec(**spec), Collect())
    assert says in str(caught.value)


def test_errors_that_end_the_context_go_up(quick, wrong, monkeypatch):
    monkeypatch.setattr(failures, "ends_context", lambda e: "index ran out" in str(e))
    with pytest.raises(RuntimeError, match="index ran out"):
        quick([wrong("breaks"), "eager"])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_other_dtypes(quick, known_ceilings, dtype):
    for rates in ("matrix_tflops", "vector_tflops"):
        known_ceilings[rates] = {dtype: 1e9}
    (record,) = quick(["eager"], dtype=dtype).records
    assert record.status == "ok" and record.dtype == dtype
    assert torch.get_default_dtype() == torch.float32
