"""What a profile suggests: each recommendation with figures, bounds that are arithmetic, and nothing where
nothing can be gained."""

import pytest
from made_up import DATA, load

from fusescope.analysis.profile import metrics as profile_metrics
from fusescope.analysis.profile.advice import recommend
from fusescope.analysis.profile.device_time import DeviceTime
from fusescope.analysis.profile.single import single_gaps
from fusescope.analysis.profile.verdict import verdict

ALEXNET = DATA / "traces" / "alexnet_a100.json.gz"


def profile(busy, span=1_000_000, copies=0, longest=(), kernels=100, launches=100, **idle):
    device = {"device": 0, "first_ns": 0, "last_ns": span, "busy_ns": busy}
    device |= {"kernel_ns": busy - copies, "copy_ns": copies}
    causes = {cause: {"gaps": count, "total_ns": ns} for cause, (count, ns) in idle.items()}
    gaps = [{"dur_ns": ns, "cause": "host", "before": "a", "after": "b", "ts_ns": 0} for ns in longest]
    rows = {"kernels": kernels, "launches": launches}
    return {"devices": [device], "idle": causes, "longest_gaps": gaps, "rows": rows}


def titles(*given, **more):
    return [r.title for r in recommend(*given, **more)]


def test_gaps_of_the_launch_path_suggest_a_graph_with_its_bound():
    first, batch, _ = recommend(profile(100_000, host=(90, 900_000)), steps=2)
    assert first.title == "Capture the step in a CUDA graph" and first.gain == pytest.approx(10)
    assert "90 gaps, 10 µs on average," in first.says and "450 µs of 500 µs per step" in first.says
    assert batch.title == "Use a larger batch" and "10× the throughput" in batch.says


def test_one_start_up_gap_is_no_launch_path():
    data = profile(950_000, span=10_000_000, host=(91, 9_050_000), longest=(9_000_000, 600))
    assert [g["dur_ns"] for g in single_gaps(data)] == [9_000_000]
    found = verdict(data)
    assert found.kind == "inconclusive" and "one gap of 90 % (9 ms) is left out" in "; ".join(found.because)
    advice = recommend(data)
    assert [r.title for r in advice] == ["Look at one gap of 9 ms", "Capture the step in a CUDA graph"][
        :1
    ] or (advice[-1].title == "Look at one gap of 9 ms")
    assert "Before b, after a: 90 % of 10 ms" in advice[-1].says


def test_even_gaps_are_all_of_the_launch_path():
    data = profile(100_000, host=(9, 900_000), longest=[100_000] * 5)
    assert not single_gaps(data) and verdict(data).kind == "launch-bound"


def test_copies_decide_before_launches():
    data = profile(400_000, copies=300_000, host=(100, 600_000))
    assert verdict(data).kind == "copy-bound"
    pageable = {
        "name": "Memcpy HtoD (Pageable -> Device)",
        "calls": 3,
        "total_ns": 300_000,
        "bytes": 3 << 20,
    }
    found = {r.title: r for r in recommend(data, copies=[pageable])}
    pinned = found["Copy from pinned memory"]
    assert pinned.gain == pytest.approx(1 / 0.7) and "3 MiB at 10.5 GB/s" in pinned.says
    other = pageable | {"name": "Memcpy HtoD (Pinned -> Device)"}
    assert "Overlap copies with kernels" in titles(data, copies=[other])
    (one,) = (r for r in recommend(data, copies=[other | {"calls": 1}]) if r.title.startswith("Overlap"))
    assert one.says.startswith("1 copy between host and device takes ")
    assert not any("opy" in t for t in titles(data, copies=[other | {"name": "Memcpy DtoD"}]))
    beside = lambda ns: DeviceTime({"memory_ns": ns, "exposed_ns": 0}, {}, {}, 100_000)  # noqa: E731
    assert not any("Overlap" in t for t in titles(data, copies=[other], parts=beside(0))), "they are"
    (one,) = (r for r in recommend(data, copies=[other], parts=beside(200_000)) if "Overlap" in r.title)
    assert one.gain == pytest.approx(1 / 0.8) and "200 µs of it beside no kernel" in one.says


def test_chains_of_element_wise_kernels_are_fused():
    short = [(7, "vectorized_elementwise_kernel<4>", 5000)] * 4
    sequence = [*short, (7, "gemm", 900_000), *short, (8, "elementwise_kernel", 5000)]
    rows = [
        {"name": "gemm", "total_ns": 900_000, "calls": 1, "mean_ns": 900_000},
        {"name": "vectorized_elementwise_kernel<4>", "total_ns": 100_000, "calls": 20, "mean_ns": 5000},
    ]
    data = profile(1_000_000)
    assert not titles(data, rows, sequence=sequence), "3 % of the kernel time is not worth it"
    (found,) = recommend(data, rows, sequence=[*short, (7, "gemm", 1)] * 4)
    assert "4 chains of 2 to 4" in found.says and "60 µs less, 6 % of the kernel time" in found.says
    assert found.gain == pytest.approx(1 / 0.94)
    alone = [(7, "elementwise", 5000), (7, "gemm", 1)] * 40
    assert not titles(data, rows, sequence=alone), "a chain has two kernels"


def test_small_grids_suggest_a_larger_batch_and_full_ones_do_not():
    row = {"name": "k", "total_ns": 1000, "calls": 1, "mean_ns": 1000, "occupancy": 0.5}
    assert "Use a larger batch, or smaller tiles" in titles(profile(990_000), [row | {"grid_occupancy": 0.1}])
    assert not titles(profile(990_000), [row | {"grid_occupancy": 0.5}])
    assert not titles(profile(990_000), [row | {"grid_occupancy": float("nan")}])


def test_the_profilers_own_work_is_named():
    data = profile(900_000, profiler=(1, 100_000)) | {
        "totals": {"overhead": {"events": 1, "total_ns": 300_000}}
    }
    (found,) = recommend(data)
    assert "300 µs of work of its own, 100 µs of it in idle gaps" in found.says


def test_where_the_device_waits_for_the_host_the_profilers_cost_is_said():
    data = profile(100_000, host=(90, 900_000))
    data["rows"] |= {"operators": 1000}
    *_, cost = recommend(data, steps=2)
    assert cost.title == "Allow for the profiler's own cost"
    assert "each of the host's 1,000 operators and 100 API calls" in cost.says
    assert not titles(profile(800_000, host=(90, 200_000)))[1:], "waits are few"


def test_with_a_benchmark_gains_are_against_the_step_without_the_profiler():
    data = profile(100_000, host=(90, 900_000))
    graph, batch, cost = recommend(data, steps=2, measured_ns=200_000)
    assert graph.gain == pytest.approx(4) and "Without the profiler a step takes 200 µs." in graph.says
    assert "4× the throughput" in batch.says
    assert "A step takes 500 µs here, 200 µs without the profiler." in cost.says
    assert "Capture the step in a CUDA graph" not in titles(data, steps=2, measured_ns=50_000)


def test_rules_of_ncu_count_by_the_time_of_their_launch():
    ncu = [{"duration_ns": 990.0}, {"duration_ns": 10.0}]
    rule = {"rule": "Occupancy", "speedup_percent": 40.0, "says": "few warps", "launch": 0}
    small = rule | {"rule": "Launch", "speedup_percent": 99.0, "launch": 1}
    never = rule | {"rule": "MemoryL2Compression"}
    (found,) = recommend({}, rules=[rule, small, never], ncu=ncu)
    assert found.title == "Nsight Compute: Occupancy" and found.gain is None
    assert "99 % of the report's time, estimated speed-up 40 %: few warps" in found.says


def test_a_busy_device_needs_no_advice():
    assert recommend(profile(990_000, host=(1, 10_000), longest=(10_000,))) == []
    assert recommend({}) == []


@pytest.mark.skipif(not ALEXNET.is_file(), reason=f"no trace at {ALEXNET}")
def test_a_real_trace_whose_copies_dominate_is_not_launch_bound(tmp_path):
    summary, rows = load(ALEXNET, tmp_path / "out")
    found = verdict(summary)
    assert found.kind == "copy-bound" and found.numbers["copy_share"] > 0.8
    advice = recommend(summary, rows["kernel_summary"])
    assert any("77.7 % of 12.9 s by itself" in r.says for r in advice)


def test_step_time_comes_first_and_factors_say_how_many_times_better():
    a = profile(500_000, host=(5, 500_000))
    b = profile(90_000, span=100_000, launched=(5, 10_000))
    assert profile_metrics.step_ns(a, 2) == 500_000 and profile_metrics.step_ns({}) is None
    steps = [{"dur_ns": 1}, {"dur_ns": 1}]
    found = profile_metrics.compare(profile_metrics.metrics(a, steps), profile_metrics.metrics(b, steps))
    assert found[0].name == "step time on the device" and found[0].factor == pytest.approx(10)
    by = {c.name: c for c in found}
    assert by["device busy"].state == "better" and by["device busy"].factor == pytest.approx(1.8)
    assert by["kernels"].state == "same"
    back = profile_metrics.compare(profile_metrics.metrics(b, steps), profile_metrics.metrics(a, steps))
    assert back[0].state == "worse" and back[0].factor == pytest.approx(0.1)
