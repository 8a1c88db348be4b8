"""Memory of execution modes: private pools of CUDA graphs count, pools of others do not, and records that
lack them show no figure that is wrong."""

from types import SimpleNamespace

import pytest

from fusescope.charts.models import memory
from fusescope.measure.device import allocated


def segment(pool, total, used, device=0):
    return {"device": device, "segment_pool_id": pool, "total_size": total, "allocated_size": used}


BEFORE = [segment((0, 0), 100, 60), segment((0, 1), 40, 0), segment((0, 0), 9, 9, device=1)]


def test_pools_count_whole_and_tensors_by_what_is_allocated():
    found = allocated.of(BEFORE, 0)
    assert found == allocated.Held(60, {(0, 1): 40})
    assert allocated.of(BEFORE, 1) == allocated.Held(9, {})


@pytest.mark.parametrize(
    ("more", "graph", "want"),
    [
        ([segment((0, 0), 50, 30)], False, (30, 0)),
        ([segment((0, 2), 200, 0), segment((0, 2), 20, 5)], True, (0, 220)),
        ([segment((0, 0), 50, 30), segment((0, 2), 200, 0)], True, (30, 200)),
        ([segment((0, 1), 500, 0)], True, (0, None)),
        ([], True, (0, None)),
        ([], False, (0, 0)),
    ],
)
def test_a_mode_has_the_pools_that_it_made(more, graph, want):
    before, after = allocated.of(BEFORE, 0), allocated.of([*BEFORE, *more], 0)
    assert allocated.grown(before, after, graph) == want


def record(**held):
    names = {"weights_bytes": 100, "kept_bytes": 0, "peak_bytes": 100, "nvml_process_bytes": 900}
    return SimpleNamespace(extra={"memory": names | held})


def test_an_old_record_of_a_replayed_graph_has_no_peak():
    found, why = memory.figures(record(call_bytes=0), 3)
    assert found["weights_bytes"] == 100 and found["kept_bytes"] == 0
    assert found["peak_bytes"] is None and why["call_bytes"] == why["peak_bytes"] == "graph pool not measured"
    assert found["nvml_process_bytes"] is None and "one process" in why["nvml_process_bytes"]


def test_what_was_measured_stays():
    found, why = memory.figures(record(call_bytes=0, graph_pool_bytes=500, peak_bytes=600), 1)
    assert (found["call_bytes"], found["graph_pool_bytes"], found["peak_bytes"]) == (0, 500, 600)
    assert found["nvml_process_bytes"] == 900 and not why
    old, reasons = memory.figures(record(call_bytes=70, peak_bytes=170), 1)
    assert old["peak_bytes"] == 170 and set(reasons) == {"graph_pool_bytes"}


def test_a_shared_pool_says_so():
    found, why = memory.figures(record(call_bytes=0, graph_pool_bytes=None, peak_bytes=None), 2)
    assert found["peak_bytes"] is None and "share torch.compile's graph pool" in why["graph_pool_bytes"]


def test_a_cpu_has_weights_alone():
    none = dict.fromkeys(memory.WORDS) | {"weights_bytes": 100}
    found, why = memory.figures(SimpleNamespace(extra={"memory": none}), 2)
    assert found["weights_bytes"] == 100 and why["peak_bytes"] == "unknown on this device"


@pytest.mark.gpu
def test_the_pool_of_a_captured_graph_is_seen_on_a_gpu():
    import torch

    from fusescope.models.run import capture

    x = torch.ones(1 << 20, device="cuda:0")
    before = allocated.on("cuda:0")
    run = capture.captured(lambda: (x + 1) * 2, "cuda:0")
    kept, pool = allocated.grown(before, allocated.on("cuda:0"), True)
    assert pool >= 2 * x.nbytes and kept < x.nbytes
    torch.cuda.reset_peak_memory_stats("cuda:0")
    now = torch.cuda.memory_allocated("cuda:0")
    run()
    assert torch.cuda.max_memory_allocated("cuda:0") == now, "a replay allocates nothing"
