"""Nsight Compute's tables in three forms, units, stall reasons, the join with a trace, and what is none."""

import gzip

import pytest
from made_up import DATA, tables

from fusescope.analysis import kernel_names
from fusescope.profiling.nsight import ncu, ncu_numbers

REAL = DATA / "nsight"
needs_data = pytest.mark.skipif(not REAL.is_dir(), reason=f"no real reports at {REAL}")
LONG = (
    '"ID","Process ID","Kernel Name","Block Size","Grid Size","Device","CC",'
    '"Section Name","Metric Name","Metric Unit","Metric Value"\n'
)
WIDE = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream",'
    '"Block Size","Grid Size","Device","CC",'
)


def load(path, out):
    out.mkdir(exist_ok=True)
    return ncu.load(path, lambda name: out / name), tables(out)


def long(section, metric, unit, value, launch=0) -> str:
    shape = '"(128, 1, 1)","(1,000, 1, 1)"'
    return f'"{launch}","9","k<1>(int)",{shape},"0","9.0","{section}","{metric}","{unit}","{value}"\n'


@needs_data
def test_the_real_wide_report_from_an_h200(tmp_path):
    summary, rows = load(REAL / "ncu_raw_h200.csv", tmp_path / "out")
    assert summary["form"] == "wide" and len(rows["ncu_kernels"]) == 6
    row = rows["ncu_kernels"][3]
    assert row["measured_occupancy"] == pytest.approx(
        0.141, abs=0.0005
    )  # cuDNN's attention, for which Kineto says 0
    assert row["occupancy"] == row["ncu_occupancy"] == 12 / 64 and row["limiter"] == "registers"
    assert row["registers"] == 168 and row["dynamic_bytes"] == 134144 and row["sms"] == 132
    assert row["duration_ns"] > 100_000 and row["tensor_percent"] > 40 and row["memory_percent"] is None
    assert summary["gpus"] == [{"id": 0, "name": "NVIDIA H200", "cc": "9.0", "sms": 132}]


@needs_data
@pytest.mark.parametrize("name", ["ncu_details_h200.csv.gz", "ncu_details_copy_blocked.csv"])
def test_the_real_long_reports(name, tmp_path):
    summary, rows = load(REAL / name, tmp_path / "out")
    assert summary["form"] == "long"
    row = rows["ncu_kernels"][0]
    for column in (
        "duration_ns",
        "sm_percent",
        "memory_percent",
        "dram_percent",
        "measured_occupancy",
        "waves",
        "limit_warps",
    ):
        assert row[column] > 0, column
    assert row["occupancy"] == row["ncu_occupancy"]
    if "copy" in name:
        assert row["duration_ns"] == 21_058_944 and row["memory_percent"] == 61.84
        units = {
            (m["section"], m["unit"]): m["value"]
            for m in rows["ncu_metrics"]
            if m["metric"] == "Memory Throughput"
        }
        assert len(units) == 2 and units["Memory Workload Analysis", "byte/s"] == 196_456_177_859.63
        assert [s["share"] for s in rows["ncu_stalls"]] == [0.527, 0.469] and rows["ncu_stalls"][0][
            "value"
        ] == 491.9
        assert any(r["rule"] == "SOLBottleneck" for r in rows["ncu_rules"])


@pytest.mark.parametrize(
    ("text", "unit", "want"),
    [
        ("1,234.5", "byte", (1234.5, "byte")),
        ("3.20", "Ghz", (3.2e9, "hz")),
        ("33.15", "us", (33150.0, "ns")),
        ("2", "second", (2e9, "ns")),
        ("32.77", "Kbyte", (32770.0, "byte")),
        ("1.02", "Kbyte/block", (1020.0, "byte/block")),
        ("71.85", "%", (71.85, "%")),
        ("n/a", "%", (None, "%")),
        ("", "byte", (None, "byte")),
        ("nan", "", (None, "")),
        ("PolicySpread", "", ("PolicySpread", "")),
    ],
)
def test_cells_become_base_units(text, unit, want):
    value, base = ncu_numbers.number(text, unit)
    assert base == want[1] and (
        value == pytest.approx(want[0]) if isinstance(want[0], float) else value == want[0]
    )


def test_program_output_and_missing_values(tmp_path):
    text = (
        "hello, world\n==PROF== Connected to process 9\n"
        + LONG
        + long("Occupancy", "Achieved Occupancy", "%", "n/a")
    )
    text += (
        "step 3, loss 0.5\n"
        + long("GPU Speed Of Light Throughput", "Duration", "us", "1,000.5")
        + "==PROF== Disconnected\n"
    )
    (tmp_path / "a.csv").write_text(text)
    summary, rows = load(tmp_path / "a.csv", tmp_path / "out")
    row = rows["ncu_kernels"][0]
    assert (row["duration_ns"], row["measured_occupancy"], row["grid_x"]) == (1_000_500.0, None, 1000)
    assert any("2 lines of program output" in n for n in summary["notes"])


def test_without_a_details_page_the_metrics_stay(tmp_path):
    (tmp_path / "a.csv").write_text(LONG + long("GPU Speed Of Light Throughput", "Duration", "us", "5"))
    (tmp_path / "details.csv").write_text("==ERROR== no sections\n")
    (tmp_path / "out").mkdir()
    summary = ncu.load(
        tmp_path / "a.csv", lambda name: tmp_path / "out" / name, details=tmp_path / "details.csv"
    )
    assert summary["rows"]["ncu_kernels"] == 1 and any("no sections" in n for n in summary["notes"])


def test_the_summary_form(tmp_path):
    text = (
        '"Process ID","Process Name","Host Name","Kernel Name","Device","CC","Invocations",'
        '"Section Name","Metric Name","Metric Unit","Minimum","Maximum","Average"\n'
    )
    for kernel, calls, value in (("a(int)", "1,200", "10"), ("b(int)", "3", "20")):
        text += f'"9","python","host","{kernel}","0","9.0","{calls}",'
        text += f'"GPU Speed Of Light Throughput","Duration","us","1","99","{value}"\n'
    (tmp_path / "a.csv").write_text(text)
    summary, rows = load(tmp_path / "a.csv", tmp_path / "out")
    assert summary["form"] == "summary"
    assert [(r["name"], r["calls"], r["duration_ns"]) for r in rows["ncu_kernels"]] == [
        ("a(int)", 1200, 10000.0),
        ("b(int)", 3, 20000.0),
    ]


def test_stall_reasons_of_the_raw_page(tmp_path):
    names = [
        f"smsp__average_warps_issue_stalled_{r}_per_issue_active.ratio"
        for r in ("barrier", "long_scoreboard", "wait")
    ]
    text = WIDE + ",".join(f'"{n}"' for n in names) + "\n" + ",".join(['""'] * 11 + ['"inst"'] * 3) + "\n"
    text += '"0","9","p","h","k","1","7","(128, 1, 1)","(10, 1, 1)","0","9.0","1","3","n/a"\n'
    (tmp_path / "a.csv").write_text(text)
    _, rows = load(tmp_path / "a.csv", tmp_path / "out")
    assert [(s["reason"], s["value"], s["share"]) for s in rows["ncu_stalls"]] == [
        ("long_scoreboard", 3.0, 0.75),
        ("barrier", 1.0, 0.25),
    ]


FORBIDDEN = (
    "==ERROR== ERR_NVGPUCTRPERM - "
    "The user does not have permission to access NVIDIA GPU Performance Counters\n"
)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "no table of Nsight Compute"),
        (b"a,b\n1,2\n", "no table of Nsight Compute"),
        (FORBIDDEN.encode(), "NVreg_RestrictProfilingToAdminUsers=0"),
        (b"==WARNING== No kernels were profiled.\n", "No kernels were profiled"),
        (LONG.encode(), "no kernel under it"),
        (WIDE.rstrip(",").encode() + b"\n", "without any metric"),
        (gzip.compress(LONG.encode(), mtime=0)[:-9], "truncated gzip"),
        (b"NVR\0" + b"\1" * 99, "pip install ncu-report reads it, or ncu --import"),
    ],
)
def test_what_is_no_report_gets_one_sentence(content, says, tmp_path):
    (tmp_path / "theirs.csv").write_bytes(content)
    with pytest.raises(ValueError, match=says) as error:
        load(tmp_path / "theirs.csv", tmp_path / "out")
    assert "\n" not in str(error.value)


def test_a_binary_report_through_nvidias_reader(tmp_path, monkeypatch):
    class Metric:
        def __init__(self, value, unit=""):
            self._value, self._unit = value, unit

        def value(self):
            return self._value

        def unit(self):
            return self._unit

    values = {"launch__registers_per_thread": Metric(168), "gpu__time_duration.sum": Metric(2.5, "usecond")}
    values |= {f"launch__{w}_dim_{a}": Metric(n) for w, n in (("grid", 132), ("block", 384)) for a in "xyz"}
    values |= {
        "device__attribute_compute_capability_major": Metric(9),
        "device__attribute_compute_capability_minor": Metric(0),
    }

    class Action:
        name = staticmethod(lambda: "k")
        metric_names = staticmethod(lambda: tuple(values))
        metric_by_name = staticmethod(values.get)

    class Reader:
        num_ranges = num_actions = staticmethod(lambda: 1)
        range_by_idx = staticmethod(lambda n: Reader)
        action_by_idx = staticmethod(lambda n: Action)
        load_report = staticmethod(lambda path: Reader)

    monkeypatch.setitem(__import__("sys").modules, "ncu_report", Reader)
    (tmp_path / "a.ncu-rep").write_bytes(b"NVR\0")
    _, rows = load(tmp_path / "a.ncu-rep", tmp_path / "out")
    row = rows["ncu_kernels"][0]
    assert (row["name"], row["duration_ns"], row["registers"], row["grid_x"], row["cc"]) == (
        "k",
        2500.0,
        168.0,
        132,
        "9.0",
    )


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("void at::native::(anonymous namespace)::Cat<int, 4>(int*, at::Tensor<int>)", "Cat"),
        ("void at::<unnamed>::dist<float, void at::f<int>(int)::[lambda() (instance 1)]>(T3)", "dist"),
        ("void unnamed>::distribution_elementwise<float>(x)", "distribution_elementwise"),
        ("std::enable_if<!T, void>::type internal::gemvx::kernel<int>(x)", "kernel"),
        ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
        ("<img src=x onerror=alert(1)>", "<img src=x onerror=alert(1)>"),
        ("", ""),
    ],
)
def test_base_names(name, base):
    assert kernel_names.base(name) == base


def test_launches_are_joined_by_name_grid_and_order():
    def row(name, grid):
        shape = dict(
            zip(("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"), (grid, 1, 1, 128, 1, 1))
        )
        return {"name": name, **shape}

    profiled = [row("void a::k<1>(int)", 4), row("k", 8), row("void k<2>(x)", 4), row("other", 4)]
    traced = [row("void (anonymous namespace)::k<1>(int)", 4), row("k", 4), row("k", 8), row("unseen", 4)]
    assert kernel_names.match(profiled, traced) == [0, 2, 1, None]
    no_shape = [
        {"name": "k", **dict.fromkeys(("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"))}
    ]
    assert kernel_names.match(no_shape, traced) == [0]


@needs_data
def test_a_real_report_is_joined_to_a_real_trace(tmp_path):
    from made_up import load as load_trace

    _, profiled = load(REAL / "ncu_raw_h200.csv", tmp_path / "ncu")
    _, traced = load_trace(DATA / "traces" / "sdpa_h200_graph.json.gz", tmp_path / "trace")
    assert kernel_names.match(profiled["ncu_kernels"], traced["kernels"]) == [None, None, None, 0, 1, 2]
