"""What people read: the table of records, ceilings beside the data sheet, progress words."""

import dataclasses

from fusescope.cli import follow
from fusescope.cli.output import missing_package, table
from fusescope.cli.tables import records as _records
from fusescope.cli.verbs import build
from fusescope.core.machine.conditions import Conditions
from fusescope.core.records import Accuracy, Progress, Rate, Record, Run, Speedup, Time, Times
from fusescope.kernels.figures import KernelResources
from fusescope.kernels.report import BuildReport, VariantBuild

H200 = {
    "device_name": "NVIDIA H200",
    "ceilings": {
        "copy_gbps": 4200.0,
        "matrix_tflops": {"float16": 790.0},
        "vector_tflops": {"float16": 60.0},
    },
}
CASE = {"m": 4096, "n": 4096, "k": 4096}


def record(impl, ms, case=CASE, **more):
    time = Time(ms, ms * 0.99, ms * 1.01, 40, True)
    flop, size = (
        2 * case["m"] * case["n"] * case["k"],
        2 * (case["m"] * case["k"] + case["k"] * case["n"] + case["m"] * case["n"]),
    )
    rate = flop / ms / 1e9
    return Record(
        "gemm",
        impl,
        case,
        "float16",
        "cuda:0",
        "ok",
        accuracy=Accuracy(1e-3, 1e-2, 1.0, "float64"),
        time_ms=Times(9.0, graph=time, graph_cold=Time(ms * 1.2, ms, ms * 1.3, 40, True)),
        speedup=Speedup("graph", 0.3 / ms, 0.29 / ms, 0.31 / ms),
        tflops=Rate(rate, rate),
        gbps=size / ms / 1e6,
        **more,
    )


def lines(records, baseline="eager", environment=H200):
    return _records.show(records, baseline, environment).splitlines()


def test_the_fastest_comes_first_and_the_share_of_the_roof_is_right():
    text = lines([record("eager", 0.3), record("v3", 0.2)])
    assert text[0] == "gemm  float16 on cuda:0  baseline eager" and text[1] == "m 4096, n 4096, k 4096"
    v3, eager = (next(line for line in text if line.startswith(name)) for name in ("v3", "eager"))
    assert text.index(v3) < text.index(eager)
    assert "200" in v3 and "198 – 202" in v3 and "240" in v3 and "1.50×" in v3 and "faster" in v3
    assert f"{100 * (2 * 4096**3 / 0.2 / 1e9) / 790:.1f} %" in v3, (
        "compute-bound: the share of the matrix rate"
    )
    assert "baseline" in eager and "faster" not in eager
    assert "copy 4,200 GB/s, matrix float16 790 TFLOP/s" in text[-1]
    assert "87.5 % of 4,800 GB/s and 79.8 % of 990 TFLOP/s" in text[-1] and "data sheet" in text[-1]


def test_cases_share_what_they_have_in_common():
    text = lines([record("eager", 0.3), record("eager", 0.1, {"m": 64, "n": 4096, "k": 4096})])
    assert text[1] == "n 4096, k 4096" and "m 4096" in text and "m 64" in text


def test_what_went_wrong_is_said_below_the_table():
    bad = Record("gemm", "/home/me/mine.py:f", CASE, "float16", "cuda:0", "oom", "12 GiB asked, 3 GiB free")
    text = lines([record("eager", 0.3), bad])
    row = next(line for line in text if line.startswith("mine.py:f"))
    assert "out of memory" in row and "n/a" in row
    assert "  mine.py:f: 12 GiB asked, 3 GiB free" in text


def test_without_ceilings_nothing_is_invented():
    text = "\n".join(lines([record("eager", 0.3)], environment={"device_name": "NVIDIA H200"}))
    assert "ceilings" not in text and "n/a" in text
    assert _records.show([], "eager", {}) == "no records"


def test_intervals_hold_for_the_processes_of_their_own_case():
    """The last case of a run that ended early may have records of fewer processes."""
    several = lambda r, n: dataclasses.replace(r, speedup=dataclasses.replace(r.speedup, processes=n))  # noqa: E731
    other = {"m": 8192, "n": 4096, "k": 4096}
    one, two = several(record("v1", 0.2), 3), several(record("v1", 0.4, other), 1)
    hold = "95 % intervals hold"
    assert [line for line in lines([one]) if hold in line] == [f"{hold} over 3 processes"]
    said = [line for line in lines([one, two]) if hold in line or line.startswith("m ")]
    assert said == ["m 4096", f"{hold} over 3 processes", "m 8192", f"{hold} within one process"]


def test_marks():
    time = Times(1.0, eager=Time(1.0, 0.5, 2.0, 10, False))
    now = Conditions(sm_mhz=1700, clock_difference=-0.031, busy="others use this GPU", busy_rounds=0.5)
    old = Record("gemm", "x", CASE, "float16", "cuda:0", "ok", time_ms=time, throttled=True)
    text = "\n".join(lines([dataclasses.replace(old, conditions=now)]))
    assert "did not converge, SM clock 3.1 % below the baseline's, busy machine" in text
    assert "The machine was busy while this was measured: others use this GPU, in up to 50 %" in text
    text = "\n".join(lines([old]))
    assert "throttled" not in text and "busy" not in text, "the power cap of an old record is no alarm"


def test_progress_words():
    run = Run("id", "bench", {}, "running", progress=Progress(2, 8, "case 1 of 4", 75.0))
    assert follow._words(run, 0) == "2 of 8 · case 1 of 4 · about 75 s left"
    assert follow._words(Run("id", "bench", {}, "queued"), 2) == "queued, 2 ahead of it on this device"


def test_a_missing_package_is_named_with_its_version():
    error = ModuleNotFoundError("No module named 'duckdb'", name="duckdb")
    assert missing_package("runs list", error).startswith(
        "runs list needs duckdb, which is not installed here: python -m pip install duckdb=="
    )


def test_table():
    assert table(["a", "bb"], [["1", "2"], ["333", "4"]], "rl") == "  a  bb\n-------\n  1  2\n333  4"


def test_a_build_is_a_line_per_function_and_what_failed_below():
    name = "void (anonymous namespace)::tiled<float, (int)4>(Args const&, int)"
    whole = ("add", "v1.cu", "cuda", "sm_90a", "built", 2.0, None, "", "1")
    broken = ("add", "v2.cu", "cuda", "sm_80", "failed", None, "error: expected a ;", "", "2")
    variants = (VariantBuild(*whole, (KernelResources(name, 40, 1024, 8, 16, 1),)), VariantBuild(*broken))
    report = BuildReport(False, 2.0, False, {}, ("sm_80", "sm_90a"), variants, 1)
    report = dataclasses.replace(report, causes=({"says": "a ; is missing", "fix": "write it"},))
    lines = build.text(report).splitlines()
    assert " ".join(lines[2].split()) == "add v1.cu sm_90a built 40 1024 8 16 tiled<float, (int)4>"
    assert lines[3].split() == ["add", "v2.cu", "sm_80", "failed"]
    assert lines[5] == "2 objects, 1 compiled in 2.0 s"
    assert lines[6:] == ["✗ add/v2.cu sm_80: error: expected a ;", "cause: a ; is missing", "  fix: write it"]
