"""Hardware peaks, roofline and accuracy figures against numbers worked out by hand."""

import math

import numpy as np
import pytest

from backend.analysis import accuracy, hardware, roofline
from backend.core.records import Rate, Record, Time, Times


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
    return Record("gemm", "v1", {}, "float16", "cuda:0", "ok", time_ms=time, tflops=Rate(tflops, tflops), gbps=gbps)


def test_roofline():
    measured = {"copy_gbps": 4000.0, "matrix_tflops": {"float16": 800.0}, "vector_tflops": {"float32": 60.0}}
    line = roofline.ceiling(measured, "float16")
    assert line.ridge == 200
    assert roofline.attainable(50, line) == 200 and roofline.attainable(200, line) == 800 == roofline.attainable(1e6, line)
    low = roofline.place(record(100.0, 2000.0), line)
    assert (low.intensity, low.attainable, low.share, low.bound) == (50, 200, 0.5, "memory")
    high = roofline.place(record(600.0, 600.0), line)
    assert (high.intensity, high.attainable, high.share, high.bound) == (1000, 800, 0.75, "compute")
    assert roofline.place(Record("gemm", "v1", {}, "float16", "cuda:0", "oom", "out of memory"), line) is None
    with pytest.raises(ValueError, match="no measured vector rate for float16"):
        roofline.ceiling(measured, "float16", "vector")
    with pytest.raises(ValueError, match="no measured bandwidth"):
        roofline.ceiling({}, "float16")


def test_errors():
    got = accuracy.errors([1.0, 2.0, 0.0, 4.0], [1.0, 2.5, 0.5, 5.0])
    assert (got.max_abs, got.mean_abs) == (1.0, 0.5)
    assert got.max_rel == 1.0 and got.mean_rel == pytest.approx((0 + 0.2 + 1 + 0.2) / 4)
    assert accuracy.errors([0.0, 3.0], [0.0, 3.0]) == accuracy.Errors(0, 0, 0, 0, 1)
    assert accuracy.errors([np.nan, 1.0], [1.0, 1.0]).max_abs == math.inf
    assert accuracy.errors([np.inf, 1.0], [np.inf, 1.0]).max_abs == 0
    assert accuracy.errors([-np.inf, 1.0], [np.inf, 1.0]).max_abs == math.inf
    assert accuracy.errors([], []).cosine == 1
    with pytest.raises(ValueError, match="one shape"):
        accuracy.errors([1.0], [1.0, 2.0])


def test_cosine():
    assert accuracy.cosine([1, 0], [0, 2]) == 0
    assert accuracy.cosine([3e200, 4e200], [-3e200, -4e200]) == pytest.approx(-1)
    assert accuracy.cosine([0, 0], [0, 0]) == 1 and accuracy.cosine([0, 0], [1, 0]) == 0
    assert math.isnan(accuracy.cosine([np.nan], [1.0]))


def test_ulps_against_numpys_spacing():
    rng = np.random.default_rng(0)
    for dtype in (np.float32, np.float16):
        reference = (rng.standard_normal(500) * 10.0 ** rng.integers(-7, 4, 500)).astype(dtype).astype(np.float64)
        expected = np.spacing(np.abs(reference).astype(dtype)).astype(np.float64)
        got = accuracy.ulps(reference + 3 * expected, reference, dtype.__name__)
        assert np.allclose(got, 3)
    assert accuracy.ulps([1.0 + 2**-7, 2.0, 0.0], [1.0, 2.0 + 2**-6, 2**-133], "bfloat16").tolist() == [1, 1, 1]
    with pytest.raises(ValueError, match="ulps are known for float32, float16, bfloat16, not 'float64'"):
        accuracy.ulps([1.0], [1.0], "float64")


def test_correct_rounding_is_at_most_half_an_ulp():
    exact = np.random.default_rng(1).standard_normal(1000)
    assert accuracy.ulps(exact.astype(np.float16), exact, "float16").max() <= 0.5


def test_ulp_histogram():
    counts = accuracy.ulp_histogram([0, 0.5, 0.6, 1, 3, 5000, np.inf])
    assert counts.sum() == 7 and len(counts) == len(accuracy.ULP_EDGES) - 1
    assert counts.tolist() == [2, 2, 0, 1, 0, 0, 0, 0, 0, 2]
