"""Traces: collected on a settled call, read back into sums that agree with the file; GPU steps told apart by
launch."""

import gzip
import json
from pathlib import Path

import pytest

from fusescope.core import paths
from fusescope.core.errors import Unsupported
from fusescope.jobs import submit
from fusescope.profiling.collect import torch_trace
from fusescope.profiling.derive import kernel_table
from fusescope.store import folder, library

SPEC = {"op": "add", "impl": "eager", "case": {"n": 65536}}
TRACES = paths.ROOT.parent / "shared" / "data" / "traces"


@pytest.mark.long
def test_a_trace_job_leaves_a_chrome_trace_and_a_table(home):
    run = submit.wait(submit.submit("trace", SPEC | {"active": 3}), 120)
    assert run.status == "done", run.reason
    path = library.find(run.id)
    found = json.loads((path / "artifacts/kernels.json").read_text())
    assert found["steps"] == 3 and found["kernels"] == [] and found["complaint"] is None
    add = next(o for o in found["operators"] if o["name"] == "aten::add")
    assert add["calls"] == 3 and add["flop"] == 3 * 65536
    events = json.loads(gzip.decompress((path / "artifacts/trace.json.gz").read_bytes()))["traceEvents"]
    assert add["total_us"] == pytest.approx(sum(e["dur"] for e in events if e.get("name") == "aten::add"))
    assert folder.records(path) == []  # a profiled time is no latency


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"impl": "nothing"}, ValueError, "no implementation 'nothing'"),
        ({"impl": None}, ValueError, "this job needs impl"),
        ({"impl": "v1_one_element"}, Unsupported, "CUDA kernel; the device is cpu"),
        ({"case": {"n": -1}}, ValueError, "n must be an integer from"),
        ({"warmup": 0}, ValueError, "warmup must be an integer from 1 to 1,000"),
        ({"active": 2.5}, ValueError, "active must be an integer"),
        ({"tool": "ncu"}, ValueError, "not tool"),
        ({"op": ["add"]}, ValueError, "op must be a text"),
    ],
)
def test_bad_requests_get_one_sentence(home, change, error, says):
    with pytest.raises(error, match=says):
        submit.submit("trace", SPEC | change)


def test_a_call_that_raises_ends_the_job_with_its_reason(home, tmp_path):
    (tmp_path / "mine.py").write_text("def add(a, b):\n    raise TypeError('no such kernel for you')\n")
    run = submit.wait(submit.submit("trace", SPEC | {"impl": f"{tmp_path / 'mine.py'}:add"}), 120)
    assert (run.status, run.reason) == ("failed", "TypeError: no such kernel for you")


def test_collecting_calls_as_often_as_asked(tmp_path):
    calls, steps = [], []
    out = tmp_path / "t.json"
    torch_trace.collect(
        lambda: calls.append(1), out, "cpu", wait=2, warmup=1, active=3, before_step=lambda: steps.append(1)
    )
    assert len(calls) == len(steps) == 6
    assert kernel_table.table(kernel_table.read_events(out))["steps"] == 3


def step(n, ts):
    return {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{n}", "ts": ts, "dur": 10.0}


def kernel(correlation, ts, dur=2.5, stream=7, name="k"):
    args = {
        "correlation": correlation,
        "grid": [8, 1, 1],
        "block": [128, 1, 1],
        "registers per thread": 40,
        "stream": stream,
    }
    return {
        "ph": "X",
        "cat": "kernel",
        "name": name,
        "ts": ts,
        "dur": dur,
        "args": args | {"shared memory": 1024},
    }


def launch(correlation, ts):
    return {
        "ph": "X",
        "cat": "cuda_runtime",
        "name": "cudaLaunchKernel",
        "ts": ts,
        "dur": 1.0,
        "args": {"correlation": correlation},
    }


def test_kernels_belong_to_the_step_that_launched_them():
    events = [step(3, 100.0), step(4, 110.5), launch(1, 105.0), launch(2, 112.0), launch(3, 113.0)]
    events += [
        kernel(1, 125.0),
        kernel(2, 130.0, dur=4.0, stream=8),
        kernel(3, 131.0, name="other"),
        kernel(9, 140.0, name="lost"),
    ]
    found = kernel_table.table(events)
    assert found["kernels_per_step"] == [1, 2] and found["linked"] == 0.75
    first = next(k for k in found["kernels"] if k["name"] == "k")
    assert (first["calls"], first["total_us"], first["mean_us"], first["min_us"], first["max_us"]) == (
        2,
        6.5,
        3.25,
        2.5,
        4.0,
    )
    assert (first["registers"], first["shared_bytes"], first["streams"]) == (40, 1024, [7, 8])
    assert "different numbers of kernels (1, 2)" in kernel_table.complaint(found, on_gpu=True)
    assert "no GPU kernel" in kernel_table.complaint(kernel_table.table([step(0, 0.0)]), on_gpu=True)
    assert kernel_table.complaint(found | {"kernels_per_step": [2, 2]}, on_gpu=True) is None


@pytest.mark.slow
@pytest.mark.skipif(not TRACES.is_dir(), reason=f"no folder of other people's traces at {TRACES}")
def test_other_peoples_traces_are_read():
    found = kernel_table.table(kernel_table.read_events(TRACES / "ns_resolution.json.gz"))
    assert found["kernels_per_step"] == [870] * 5 and found["linked"] == 1.0
    for file in sorted(TRACES.glob("*.json.gz")):
        kernel_table.table(kernel_table.read_events(file))


@pytest.mark.gpu
def test_a_trace_on_the_gpu_holds_the_same_kernels_in_every_step(home):
    run = submit.wait(submit.submit("trace", SPEC | {"device": "cuda:0"}), 300)
    assert run.status == "done", run.reason
    found = json.loads((Path(library.find(run.id)) / "artifacts/kernels.json").read_text())
    assert found["kernels"] and found["linked"] == 1.0 and found["complaint"] is None
