"""Hardware peaks, roofline and accuracy figures against numbers worked out by hand."""

import pytest

from fusescope.analysis import hardware, roofline
from fusescope.analysis.accuracy import sums
from fusescope.analysis.compare import ratios
from fusescope.core.records import Accuracy, Rate, Record, Time, Times


@pytest.mark.parametrize(
    "name,model",
    [
        ("NVIDIA H200", "H200 SXM"),
        ("NVIDIA H200 NVL", "H200 NVL"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA A100-SXM4-80GB", "A100 SXM 80 GB"),
        ("NVIDIA A100-SXM4-40GB", "A100 40 GB"),
        ("NVIDIA A100 80GB PCIe", "A100 PCIe 80 GB"),
        ("Tesla V100-SXM2-16GB", "V100 SXM2"),
        ("Tesla T4", "T4"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA GeForce RTX 2060", "GeForce RTX 2060"),
        ("NVIDIA GeForce RTX 3090", "GeForce RTX 3090"),
        ("NVIDIA GeForce RTX 4080 Laptop GPU", "GeForce RTX 4080 Laptop"),
        ("NVIDIA GeForce RTX 4080", "GeForce RTX 4080"),
        ("NVIDIA GeForce RTX 4090", "GeForce RTX 4090"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("NVIDIA GeForce RTX 2060 SUPER", None),
        ("Some other accelerator", None),
    ],
)
def test_devices_are_found_by_name(name, model):
    found = hardware.peaks(name)
    assert (found.name if found else None) == model


def test_every_sheet_is_consistent():
    for sheet in hardware.known():
        assert sheet.source and sheet.bandwidth_gbps > 100 and sheet.vector_tflops > 5
        assert sheet.tflops("float16") > sheet.vector_tflops
        assert sheet.tflops("float32", "vector") == sheet.vector_tflops and sheet.tflops("float32") is None
        assert ("bfloat16" in sheet.matrix_tflops) == (float(sheet.compute_capability) >= 8)


@pytest.mark.parametrize(
    "clock,width,gbps",
    [(7001, 192, 336), (9751, 384, 936), (10501, 384, 1008), (1593, 5120, 2039), (877, 4096, 898)],
)
def test_bandwidth_from_clock_and_width(clock, width, gbps):
    """RTX 2060, 3090, 4090, A100 80 GB and V100, with the clocks that their drivers report."""
    assert hardware.theoretical_bandwidth(clock, width) == pytest.approx(gbps, rel=0.003)
    with pytest.raises(ValueError, match="bus width is above 0"):
        hardware.theoretical_bandwidth(clock, 0)


def record(tflops, gbps):
    time = Times(eager=Time(1.0, 0.9, 1.1, 10, True))
    return Record(
        "gemm", "v1", {}, "float16", "cuda:0", "ok", time_ms=time, tflops=Rate(tflops, tflops), gbps=gbps
    )


def test_roofline():
    measured = {"copy_gbps": 4000.0, "matrix_tflops": {"float16": 800.0}, "vector_tflops": {"float32": 60.0}}
    line = roofline.ceiling(measured, "float16")
    assert line.ridge == 200
    assert roofline.attainable(50, line) == 200 and roofline.attainable(
        200, line
    ) == 800 == roofline.attainable(1e6, line)
    low = roofline.place(record(100.0, 2000.0), line)
    assert (low.intensity, low.attainable, low.share, low.bound) == (50, 200, 0.5, "memory")
    high = roofline.place(record(600.0, 600.0), line)
    assert (high.intensity, high.attainable, high.share, high.bound) == (1000, 800, 0.75, "compute")
    assert roofline.place(Record("gemm", "v1", {}, "float16", "cuda:0", "oom", "out of memory"), line) is None
    with pytest.raises(ValueError, match="no measured vector rate for float16"):
        roofline.ceiling(measured, "float16", "vector")
    with pytest.raises(ValueError, match="no measured bandwidth"):
        roofline.ceiling({}, "float16")


def test_cosine_from_sums():
    assert sums.cosine(0.0, 1.0, 4.0) == 0 and sums.cosine(-25.0, 25.0, 25.0) == -1
    assert sums.cosine(0.0, 0.0, 0.0) == 1 and sums.cosine(0.0, 0.0, 1.0) == 0
    assert sums.cosine(1.0 + 1e-9, 1.0, 1.0) == 1  # rounding does not push it beyond


def test_the_worse_of_two_judgements():
    a, b = Accuracy(1e-3, 0.5, 0.9, "float64"), Accuracy(2e-3, 0.1, 0.99, "float32")
    assert sums.worse(a, b) == Accuracy(2e-3, 0.5, 0.9, "float32")
    assert sums.worse(a, None) == a == sums.worse(None, a) and sums.worse(None, None) is None


@pytest.mark.parametrize("doubt", ["wide", "few samples"])
@pytest.mark.parametrize("unsure", ["base", "other", None])
@pytest.mark.parametrize(("factor", "claimed"), [(1.4, False), (2.0, True)])
def test_a_ratio_of_a_time_that_did_not_converge_leaves_a_factor_open(factor, claimed, unsure, doubt):
    """By the two intervals alone 1.4 times as fast was "faster" [1.39, 1.41] after three samples."""

    def time(name: str, median: float) -> Time:
        if name != unsure:
            return Time(median, 0.99 * median, 1.01 * median, 100, converged=True)
        if doubt == "few samples":
            return Time(median, 0.99 * median, 1.01 * median, 3, converged=False)
        return Time(median, 0.85 * median, 1.15 * median, 100, converged=False)

    found = ratios.ratio(time("base", factor), time("other", 1.0), "eager")
    assert found.verdict == ("faster" if claimed or not unsure else "inconclusive")
    assert (found.low <= factor / 1.5 and found.high >= factor * 1.5) == bool(unsure)


def test_a_time_may_be_known_well_enough_for_one_ratio_only():
    """4 % wide: enough beside one twice as slow, too wide beside one 1.1 times as slow."""
    time = Time(1.0, 0.98, 1.02, 100, converged=False)
    assert ratios.ratio(Time(2.0, 1.99, 2.01, 100, True), time, "eager").verdict == "faster"
    assert ratios.ratio(Time(1.1, 1.095, 1.105, 100, True), time, "eager").verdict == "inconclusive"
