"""From samples to records, for candidates as a GPU would leave them: no device needed."""

import json

import pytest
import torch

from fusescope import ops
from fusescope.core.records import BenchSpec, Record
from fusescope.kernels import report
from fusescope.kernels.report import KernelResources
from fusescope.measure import result
from fusescope.measure.candidate import Candidate
from fusescope.measure.checking import check
from fusescope.measure.compare import Series
from fusescope.measure.timing.launches import Launch
from fusescope.ops.base import Cost, Implementation

SPEC = BenchSpec("add", ("v2", "eager"), ({"n": 1000},), "eager", dtype="float16", device="cuda:0")
COST = Cost(1e9, 2e9, 3e6, 1e6)
FACTS = {"compute_capability": "9.0", "arch": "sm_90a"}


def series(mode, ms, faults=()):
    return Series(mode, [[ms, ms * 1.001]] * 20, [{"faults": list(faults)}] * 20, converged=True)


def candidate(name="v2", kind="ours", faults=(), **ms):
    info = Implementation(
        name, kind, "", ("cuda",), source="cuda/add/v2.cu" if kind == "ours" else None, source_hash="0" * 16
    )
    c = Candidate(
        info, run=lambda: None, first_ms=12.0, series={m: series(m, t, faults) for m, t in ms.items()}
    )
    c.launches = [
        Launch("void (anonymous namespace)::add<float>(float*)", (64, 1, 1), (256, 1, 1), 40, 0, 0, 16)
    ]
    return c


def record(c, baseline):
    return result.record(SPEC, {"n": 1000}, c, baseline, COST, FACTS)


def test_rates_are_of_the_main_mode_and_name_both_counts():
    base = candidate("eager", "peer", graph=0.4, eager=1.0, graph_cold=0.8, eager_cold=2.0)
    r = record(candidate(graph=0.2, eager=1.0, graph_cold=0.4, eager_cold=2.0), base)
    assert (
        r.main == "graph"
        and r.time_ms.graph.median == pytest.approx(0.2, rel=0.01)
        and r.time_ms.first == 12.0
    )
    assert (
        r.tflops.effective == pytest.approx(1e9 / 0.2e-3 / 1e12, rel=0.01)
        and r.tflops.executed == 2 * r.tflops.effective
    )
    assert r.gbps == pytest.approx(4e6 / 0.2e-3 / 1e9, rel=0.01)
    assert (
        r.speedup.of == "graph" and r.speedup.median == pytest.approx(2.0) and r.speedup.verdict == "faster"
    )


def test_a_speedup_is_of_a_mode_that_both_have():
    base = candidate("eager", "peer", eager=1.0)
    assert record(candidate(graph=0.2, eager=0.5), base).speedup.of == "eager"
    cold = candidate("eager", "peer", graph_cold=1.0, eager_cold=3.0)
    assert record(candidate(graph_cold=0.5, eager_cold=3.0), cold).speedup.of == "graph_cold"
    failed = candidate("eager", "peer")
    failed.fail("oom", "no memory")
    assert record(candidate(graph=0.2), failed).speedup is None


@pytest.mark.parametrize("mhz, marked", [(1755, False), (1745, False), (1600, True)])
def test_another_clock_than_the_baseline_is_marked_and_nothing_corrected(mhz, marked):
    ours, base = candidate(graph=0.2, faults=["power cap"]), candidate("eager", "peer", graph=0.2)
    ours.clocks, base.clocks, ours.compared = {"graph": [mhz] * 3}, {"graph": [1755] * 3}, 12
    r = record(ours, base)
    assert r.status == "ok" and r.throttled is marked and r.time_ms.graph.n == 40
    assert r.conditions.sm_mhz == mhz and r.conditions.compared == 12
    assert Record.from_json(json.loads(json.dumps(r.to_json()))) == r


def test_spills_are_the_compilers_where_the_kernel_is_the_same(monkeypatch):
    asked = []

    def resources(family, impl, arch):
        asked.append((family, impl, arch))
        return (
            [KernelResources("void (anonymous namespace)::add<float>(float*)", 40, 0, 8, 0, 0)]
            if arch == "sm_90a"
            else []
        )

    monkeypatch.setattr(report, "resources", resources)
    r = record(candidate(graph=0.2), candidate("eager", "peer", graph=0.2))
    assert r.resources.spills == 8 and r.resources.registers == 40 and r.resources.occupancy == 0.75
    assert ("add", "v2", "sm_90a") in asked
    peer = record(candidate("eager", "peer", graph=0.2), candidate("eager", "peer", graph=0.2))
    assert peer.resources.spills is None and peer.backend == "add"


def test_a_gpu_without_known_limits_has_no_occupancy(monkeypatch):
    monkeypatch.setattr(report, "resources", lambda *a: [])
    c = candidate(graph=0.2)
    assert result.resources(c, {"compute_capability": "13.7", "arch": None}).occupancy is None


def test_inputs_that_do_not_fit_are_everybodys_result(quick, wrong, monkeypatch):
    add = ops.load("add")
    plain = add.inputs

    def inputs(values, *rest, **more):
        if values["n"] == 777:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 300.00 GiB.")
        return plain(values, *rest, **more)

    monkeypatch.setattr(add, "inputs", inputs)
    records = quick(["eager", wrong("right")], cases=({"n": 777}, {"n": 778})).records
    assert [r.status for r in records] == ["oom", "oom", "ok", "ok"]
    assert records[0].reason.startswith(
        "the inputs and the reference of this case do not fit in memory: CUDA out of memory"
    )


def test_a_reference_that_does_not_fit_in_float64_says_so(monkeypatch):
    add = ops.load("add")
    tried = []

    def reference(inputs, dtype=torch.float64):
        tried.append(dtype)
        if dtype == torch.float64:
            raise torch.OutOfMemoryError("no")
        return inputs["a"].to(dtype) + inputs["b"].to(dtype)

    monkeypatch.setattr(add, "reference", reference)
    case = check.Case(add, {"n": 100}, "float32", "cpu", 0)
    assert tried == [torch.float64, torch.float32] and case.precision == "float32"
    outcome = case.verify(lambda: case.inputs["a"] + case.inputs["b"])
    assert outcome.reason is None and outcome.accuracy.reference == "float32"


def test_a_reference_that_does_not_fit_on_the_device_is_computed_in_main_memory(monkeypatch):
    add = ops.load("add")
    plain, calls = add.reference, []

    def reference(inputs):
        calls.append(inputs["a"].device.type)
        if len(calls) == 1:
            raise torch.OutOfMemoryError("no")
        return plain(inputs)

    monkeypatch.setattr(add, "reference", reference)
    case = check.Case(add, {"n": 100}, "float32", "cpu", 0)
    assert calls == ["cpu", "cpu"] and case.precision == "float64" and case.reference.dtype == torch.float64
