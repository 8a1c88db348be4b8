"""Kernel → launch → operator → module and step; graph replays; occupancy; idle gaps and their causes;
sums."""

import itertools

import pytest
from made_up import DATA, H200, kernel, launch, load, op, tables, trace, x

from fusescope.analysis.occupancy import theoretical
from fusescope.profiling.chrome import importer

TRACES = sorted((DATA / "traces").glob("*.json.gz"))


def test_external_ids_count_only_where_the_operator_was_open(tmp_path):
    """Old traces number launches like operators: a coincidence must not link a kernel to a stranger."""
    events = [op("outer", 0, 100, 1), op("inner", 10, 50, 2), op("elsewhere", 200, 10, 3)]
    events += [launch(21, 20, external=2), kernel(21, 30, 5, external=2)]  # both agree
    events += [
        launch(22, 70),
        kernel(22, 80, 5, external=3),
    ]  # 3 was not open at 70: the enclosing one is outer
    events += [launch(23, 150), kernel(23, 160, 5)]  # nothing around it
    events += [kernel(99, 170, 5, external=2)]  # no launch at all: the id alone is believed
    summary, rows = load(trace(tmp_path / "t.json", events), tmp_path / "out")
    found = [(k["operator_name"], k["operator_link"], k["launch_delay_ns"]) for k in rows["kernels"]]
    assert found == [
        ("inner", "external id", 10000),
        ("outer", "enclosing", 10000),
        (None, None, 10000),
        ("inner", "external id", None),
    ]
    assert summary["coverage"] == {
        "kernels": 4,
        "launch": 0.75,
        "operator": 0.75,
        "module": 0.0,
        "by": {"external id": 2, "enclosing": 1, "captured run": 0, "captured trace": 0},
    }
    device = {o["name"]: (o["device_ns"], o["self_device_ns"]) for o in rows["operators"]}
    assert device == {"outer": (15000, 5000), "inner": (10000, 10000), "elsewhere": (0, 0)}
    assert {o["name"]: o["self_ns"] for o in rows["operators"]} == {
        "outer": 50000,
        "inner": 50000,
        "elsewhere": 10000,
    }


def test_a_correlation_that_comes_twice_means_the_last_launch_before(tmp_path):
    events = [
        op("first", 0, 10),
        launch(5, 1),
        kernel(5, 3, 1),
        op("second", 100, 10),
        launch(5, 101),
        kernel(5, 103, 1),
    ]
    _, rows = load(trace(tmp_path / "t.json", events), tmp_path / "out")
    assert [k["operator_name"] for k in rows["kernels"]] == ["first", "second"]


def test_another_thread_encloses_nothing(tmp_path):
    events = [op("here", 0, 10), launch(1, 5, tid=2), kernel(1, 7, 1)]
    _, rows = load(trace(tmp_path / "t.json", events), tmp_path / "out")
    assert rows["kernels"][0]["operator_name"] is None


def test_modules_by_hooks_by_stack_and_by_hierarchy(tmp_path):
    events = [
        x("user_annotation", "module: bert.encoder.0", 0, 100),
        op("linear", 10, 20),
        launch(1, 15),
        kernel(1, 20, 4),
    ]
    events += [
        x("python_function", "nn.Module: Bert_0", 200, 100),
        x("python_function", "nn.Module: Linear_3", 210, 50),
    ]
    events += [
        x("python_function", "torch/nn/functional.py(1): linear", 215, 40),
        op("addmm", 220, 10),
        launch(2, 225),
        kernel(2, 230, 6),
    ]
    events += [
        op("mm", 400, 20, **{"Module Hierarchy": "TOP(ResNet)::forward.conv1(Conv2d)::forward"}),
        launch(3, 405),
        kernel(3, 410, 1),
    ]
    events += [x("user_annotation", "a stranger's range", 500, 20), launch(4, 505), kernel(4, 510, 1)]
    summary, rows = load(trace(tmp_path / "t.json", events), tmp_path / "out")
    assert [k["module"] for k in rows["kernels"]] == ["bert.encoder.0", "Bert_0.Linear_3", "TOP.conv1", None]
    assert summary["coverage"]["module"] == 0.75
    sums = {m["module"]: (m["kernels"], m["device_ns"], m["total_device_ns"]) for m in rows["module_summary"]}
    assert (
        sums["Bert_0"] == (0, 0, 6000)
        and sums["Bert_0.Linear_3"] == (1, 6000, 6000)
        and sums["bert"] == (0, 0, 4000)
    )


def test_replayed_kernels_get_the_operators_of_the_captured_run(tmp_path):
    names = ["a", "b", "a", "c"]
    events = [op(f"op {i}", 10 * i, 8, i) for i in range(4)]
    for i, name in enumerate(names):
        events += [launch(i + 1, 10 * i + 1, external=i), kernel(i + 1, 10 * i + 4, 1, name, external=i)]
    for replay in range(2):
        start = 100 + 50 * replay
        events.append(launch(50 + replay, start, name="cudaGraphLaunch"))
        events += [
            kernel(50 + replay, start + 5 + i, 1, name)
            for i, name in enumerate([*names, "never seen", "b", "a"])
        ]
    summary, rows = load(trace(tmp_path / "t.json", events), tmp_path / "out")
    replayed = rows["kernels"][4:]
    expected = ["op 0", "op 1", "op 2", "op 3", None, "op 1", "op 2"]
    assert [k["operator_name"] for k in replayed] == expected * 2
    assert {k["operator_link"] for k in replayed} == {"captured run", None}
    assert summary["coverage"]["by"]["captured run"] == 12


def test_replayed_kernels_of_another_trace(tmp_path):
    eager = [
        op("mm", 0, 8, 1),
        launch(1, 1, external=1),
        kernel(1, 4, 1, "a", external=1),
        x("user_annotation", "module: net.0", 0, 9),
    ]
    eager += [op("add", 10, 8, 2), launch(2, 11, external=2), kernel(2, 14, 1, "b", external=2)]
    _, before = load(trace(tmp_path / "eager.json", eager), tmp_path / "eager")
    replay = [op("inside", 0, 3, 9), launch(7, 1, name="cudaGraphLaunch")]
    replay += [
        kernel(7, 10 + i, 1, name, grid=(1 if name == "c" else 132, 1, 1)) for i, name in enumerate("abcb")
    ]
    file = trace(tmp_path / "graph.json", replay)
    alone, rows = load(file, tmp_path / "alone")
    assert {k["operator_link"] for k in rows["kernels"]} == {"enclosing"}
    (tmp_path / "both").mkdir()
    both = importer.load(file, lambda name: tmp_path / "both" / name, captured=before["kernels"])
    found = [
        (k["operator_name"], k["module"], k["operator_link"]) for k in tables(tmp_path / "both")["kernels"]
    ]
    linked = ("captured trace",)
    assert found == [
        ("mm", "net.0", *linked),
        ("add", None, *linked),
        ("inside", None, "enclosing"),
        ("add", None, *linked),
    ]
    assert both["coverage"]["by"] == {
        "external id": 0,
        "enclosing": 1,
        "captured run": 0,
        "captured trace": 3,
    }
    assert both["totals"] == alone["totals"]


@pytest.mark.skipif(not TRACES, reason=f"no folder of other people's traces at {DATA}")
def test_a_real_graph_and_a_real_old_trace(tmp_path):
    _, rows = load(DATA / "traces" / "sdpa_h200_graph.json.gz", tmp_path / "graph")
    assert [k["operator_link"] for k in rows["kernels"]] == ["external id", "captured run", "captured run"]
    assert len({k["operator_name"] for k in rows["kernels"]}) == 1
    assert all(
        k["occupancy"] == 12 / 64 and k["reported_occupancy"] == 0 and k["limiter"] == "registers"
        for k in rows["kernels"]
    )
    old, rows = load(DATA / "traces" / "alexnet_a100.json.gz", tmp_path / "old")
    assert old["coverage"]["by"] == {
        "external id": 0,
        "enclosing": 79,
        "captured run": 0,
        "captured trace": 0,
    }
    assert all(k["occupancy"] > 0 for k in rows["kernels"] if k["shared_bytes"] > 49152)


def test_occupancy_is_recomputed_and_limited_by_the_grid(tmp_path):
    shapes = [(128, 32, 0, 10), (384, 168, 134144, 132), (256, 64, 49152, 100000), (1024, 32, 0, 200)]
    events = [
        kernel(i, i, 1, f"k{i}", grid=(g, 1, 1), block=(b, 1, 1), registers=r, shared=s)
        for i, (b, r, s, g) in enumerate(shapes)
    ]
    events.append(kernel(9, 9, 1, "impossible", block=(1024, 2, 1)))
    _, rows = load(trace(tmp_path / "t.json", events), tmp_path / "out")
    for row, (b, r, s, g) in zip(rows["kernels"], shapes):
        want = theoretical("9.0", b, r, 0, s)
        assert (row["occupancy"], row["active_blocks"], row["limiter"]) == (
            want.occupancy,
            want.active_blocks,
            want.limiter,
        )
        assert row["grid_occupancy"] == pytest.approx(min(want.active_blocks, g / 132) * -(-b // 32) / 64)
        assert row["grid_occupancy"] <= row["occupancy"]
    assert rows["kernels"][-1]["limiter"] == "unlaunchable"


@pytest.mark.parametrize(
    ("gpu", "says"),
    [
        (H200 | {"name": "AMD Instinct", "warpSize": 64}, "AMD Instinct is no NVIDIA GPU"),
        (H200 | {"computeMajor": 7}, "occupancy is known for compute capability"),
        (None, "does not say which GPU"),
    ],
)
def test_where_occupancy_is_not_known_the_reason_is_said(gpu, says, tmp_path):
    file = trace(tmp_path / "t.json", [kernel(1, 1, 1)], deviceProperties=[gpu] if gpu else "none")
    summary, rows = load(file, tmp_path / "out")
    assert rows["kernels"][0]["occupancy"] is None and any(says in n for n in summary["notes"])


def test_idle_gaps_have_causes(tmp_path):
    events = [
        launch(1, 0),
        kernel(1, 10, 10),  # busy 10–20
        launch(2, 5),
        kernel(2, 25, 5),  # launched at 5, gap 20–25
        launch(3, 60),
        kernel(3, 62, 8),  # launched at 60, gap 30–62: the host was late
        x("cuda_runtime", "cudaDeviceSynchronize", 65, 10, {"correlation": 77}),
        launch(4, 90),
        kernel(4, 92, 8),  # gap 70–92
        x("overhead", "Activity Buffer Request", 101, 5),
        launch(5, 110),
        kernel(5, 112, 8),  # gap 100–112
        kernel(99, 130, 10),  # gap 120–130, no launch
        kernel(98, 125, 10, stream=8),  # and another stream works from 125 on
    ]
    summary, rows = load(trace(tmp_path / "t.json", events), tmp_path / "out")
    found = [(g["ts_ns"] // 1000, g["dur_ns"] // 1000, g["cause"]) for g in rows["gaps"]]
    assert found == [
        (20, 5, "launched"),
        (30, 32, "host"),
        (70, 22, "synchronised"),
        (100, 12, "profiler"),
        (120, 5, "unknown"),
    ]
    device = summary["devices"][0]
    idle = sum(c["total_ns"] for c in summary["idle"].values())
    assert device["busy_ns"] + idle == device["last_ns"] - device["first_ns"] == 130_000
    assert device["kernel_ns"] == 59_000


def test_steps_hold_what_was_launched_in_them(tmp_path):
    events = [x("user_annotation", f"ProfilerStep#{n}", 100 * n, 99) for n in (3, 4)]
    events += [x("gpu_user_annotation", "ProfilerStep#3", 0, 1000)]
    events += [
        launch(1, 310),
        kernel(1, 320, 5),
        launch(2, 390),
        kernel(2, 405, 7),
        launch(3, 450),
        kernel(3, 460, 11),
    ]
    _, rows = load(trace(tmp_path / "t.json", events), tmp_path / "out")
    assert [(s["step"], s["kernels"], s["kernel_ns"]) for s in rows["steps"]] == [
        (3, 2, 12000),
        (4, 1, 11000),
    ]
    assert [k["step"] for k in rows["kernels"]] == [3, 3, 4]


def test_sums_by_name_are_those_of_the_rows(tmp_path):
    events = [kernel(i, 10 * i, 1 + i % 3, f"k{i % 2}", grid=(1 + i % 3, 1, 1)) for i in range(12)]
    _, rows = load(trace(tmp_path / "t.json", events), tmp_path / "out")
    for name, group in itertools.groupby(
        sorted(rows["kernels"], key=lambda k: k["name"]), lambda k: k["name"]
    ):
        times = [k["dur_ns"] for k in group]
        row = next(r for r in rows["kernel_summary"] if r["name"] == name)
        assert (row["calls"], row["total_ns"], row["min_ns"], row["max_ns"]) == (
            len(times),
            sum(times),
            min(times),
            max(times),
        )
        assert row["mean_ns"] == sum(times) / len(times) and row["launches"] == 3 and row["grid_x"] == 3
    assert sum(r["share"] for r in rows["kernel_summary"]) == pytest.approx(1)


def test_copies_have_a_direction_and_a_bandwidth(tmp_path):
    events = [
        x("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 0, 2, {"bytes": 4000, "device": 0, "stream": 7}),
        x("gpu_memset", "Memset (Device)", 5, 1, {"bytes": 16, "device": 0, "stream": 7}),
        x("gpu_memcpy", "CopyDeviceToDevice", 9, 0, {"kind": "DtoD", "bytes": 8}),
    ]
    _, rows = load(trace(tmp_path / "t.json", events), tmp_path / "out")
    assert [(c["kind"], c["bytes"], c["gbps"]) for c in rows["copies"]] == [
        ("HtoD", 4000, 2.0),
        ("memset", 16, 0.016),
        ("DtoD", 8, None),
    ]
