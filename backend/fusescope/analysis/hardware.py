"""What the data sheets say of a GPU: memory bandwidth and dense arithmetic peaks, each with its source.

Matrix peaks are dense (no 2:4 sparsity) with fp32 accumulation, at the sheet's boost clock. Ceilings that a
kernel is judged by are measured on the device (measure.ceilings); these stand next to them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Peaks:
    """A GPU model. bandwidth_gbps: GB/s; vector_tflops: fp32 outside the tensor cores; matrix_tflops: by
    dtype, TFLOP/s.

    ``matrix_tflops`` keys: "float16", "bfloat16", "tf32"; a dtype the tensor cores do not take is absent.
    """

    name: str
    compute_capability: str
    memory_gb: float
    bandwidth_gbps: float
    vector_tflops: float
    matrix_tflops: Mapping[str, float]
    source: str

    def tflops(self, dtype: str, unit: str = "matrix") -> float | None:
        """The peak for a dtype; None where the sheet has none. fp32 in the tensor cores would be tf32, so it
        has none there."""
        if unit == "vector":
            return self.vector_tflops if dtype == "float32" else None
        return self.matrix_tflops.get(dtype)


def _tensor(half: float, tf32: float | None, bfloat16: bool = True) -> dict[str, float]:
    return {"float16": half} | ({"bfloat16": half} if bfloat16 else {}) | ({"tf32": tf32} if tf32 else {})


_TURING = (
    "NVIDIA Turing GPU Architecture whitepaper (WP-09183-001): "
    "64 FMA per tensor core and clock, halved with fp32 accumulation"
)
_GA100 = "NVIDIA A100 Tensor Core GPU data sheet"
_GA102 = "NVIDIA Ampere GA102 GPU Architecture whitepaper, appendix A"
_ADA = "NVIDIA Ada GPU Architecture whitepaper, appendix A"
_HOPPER = "NVIDIA H100 Tensor Core GPU data sheet, dense = half of the figure with sparsity"

# (pattern of the name that NVML gives, peaks); the first match counts.
_KNOWN: tuple[tuple[str, Peaks], ...] = (
    (
        r"RTX 2060(?! SUPER)",
        Peaks(
            "GeForce RTX 2060",
            "7.5",
            6,
            336.0,
            6.45,
            _tensor(25.8, None, False),
            f"{_TURING}; 240 tensor cores, 1920 cores, 1.68 GHz; GDDR6 14 Gb/s × 192 bit",
        ),
    ),
    (
        r"RTX 2080 Ti",
        Peaks(
            "GeForce RTX 2080 Ti",
            "7.5",
            11,
            616.0,
            13.4,
            _tensor(53.8, None, False),
            "NVIDIA Turing GPU Architecture whitepaper (WP-09183-001), table 1, reference clocks",
        ),
    ),
    (r"\bT4\b", Peaks("T4", "7.5", 16, 320.0, 8.1, _tensor(65.0, None, False), "NVIDIA T4 data sheet")),
    (
        r"V100-PCIE|V100 PCIe",
        Peaks(
            "V100 PCIe",
            "7.0",
            16,
            900.0,
            14.0,
            _tensor(112.0, None, False),
            "NVIDIA V100 Tensor Core GPU data sheet",
        ),
    ),
    (
        r"V100",
        Peaks(
            "V100 SXM2",
            "7.0",
            16,
            900.0,
            15.7,
            _tensor(125.0, None, False),
            "NVIDIA V100 Tensor Core GPU data sheet",
        ),
    ),
    (
        r"A100.*PCIE-40|A100-SXM4-40",
        Peaks("A100 40 GB", "8.0", 40, 1555.0, 19.5, _tensor(312.0, 156.0), _GA100),
    ),
    (r"A100.*PCI", Peaks("A100 PCIe 80 GB", "8.0", 80, 1935.0, 19.5, _tensor(312.0, 156.0), _GA100)),
    (r"A100", Peaks("A100 SXM 80 GB", "8.0", 80, 2039.0, 19.5, _tensor(312.0, 156.0), _GA100)),
    (
        r"RTX 3090 Ti",
        Peaks(
            "GeForce RTX 3090 Ti",
            "8.6",
            24,
            1008.0,
            40.0,
            _tensor(80.0, 40.0),
            "NVIDIA Ada GPU Architecture whitepaper, appendix A, comparison column",
        ),
    ),
    (r"RTX 3090", Peaks("GeForce RTX 3090", "8.6", 24, 936.2, 35.6, _tensor(71.2, 35.6), _GA102)),
    (
        r"RTX 3080(?! Ti|.*Laptop)",
        Peaks("GeForce RTX 3080", "8.6", 10, 760.3, 29.8, _tensor(59.5, 29.8), _GA102),
    ),
    (r"\bA10\b", Peaks("A10", "8.6", 24, 600.0, 31.2, _tensor(125.0, 62.5), "NVIDIA A10 data sheet")),
    (r"RTX A6000", Peaks("RTX A6000", "8.6", 48, 768.0, 38.7, _tensor(154.8, 77.4), _GA102)),
    (
        r"RTX 4080.*Laptop",
        Peaks(
            "GeForce RTX 4080 Laptop",
            "8.9",
            12,
            432.0,
            33.9,
            _tensor(67.7, 33.9),
            "computed from the published configuration: 58 SMs of 128 cores, "
            "512 dense fp16 FLOP per clock and SM with fp32 accumulation, "
            "2.28 GHz (the highest boost of 1.35–2.28); GDDR6 18 Gb/s × 192 bit",
        ),
    ),
    (r"RTX 4080(?! SUPER)", Peaks("GeForce RTX 4080", "8.9", 16, 716.8, 48.7, _tensor(97.5, 48.7), _ADA)),
    (
        r"RTX 4090(?!.*(Laptop| D))",
        Peaks("GeForce RTX 4090", "8.9", 24, 1008.0, 82.6, _tensor(165.2, 82.6), _ADA),
    ),
    (
        r"\bL4\b",
        Peaks(
            "L4",
            "8.9",
            24,
            300.0,
            30.3,
            _tensor(121.0, 60.0),
            "NVIDIA L4 data sheet, dense = half of the figure with sparsity",
        ),
    ),
    (
        r"\bL40S\b",
        Peaks(
            "L40S",
            "8.9",
            48,
            864.0,
            91.6,
            _tensor(362.0, 183.0),
            "NVIDIA L40S data sheet, dense = half of the figure with sparsity",
        ),
    ),
    (
        r"H200 NVL",
        Peaks(
            "H200 NVL",
            "9.0",
            141,
            4800.0,
            60.0,
            _tensor(835.5, 417.5),
            "NVIDIA H200 data sheet, dense = half of the figure with sparsity",
        ),
    ),
    (
        r"H200",
        Peaks(
            "H200 SXM",
            "9.0",
            141,
            4800.0,
            67.0,
            _tensor(989.5, 494.5),
            "NVIDIA H200 data sheet, dense = half of the figure with sparsity",
        ),
    ),
    (r"H100 NVL", Peaks("H100 NVL", "9.0", 94, 3900.0, 60.0, _tensor(835.5, 417.5), _HOPPER)),
    (r"H100 PCIe", Peaks("H100 PCIe", "9.0", 80, 2000.0, 51.0, _tensor(756.0, 378.0), _HOPPER)),
    (r"H100", Peaks("H100 SXM", "9.0", 80, 3350.0, 67.0, _tensor(989.5, 494.5), _HOPPER)),
)


def known() -> list[Peaks]:
    """Every GPU model with known peaks."""
    return [peaks for _, peaks in _KNOWN]


def peaks(device_name: str) -> Peaks | None:
    """The data sheet's figures for a device by the name NVML or torch gives it ("NVIDIA H200"); None for one
    not listed."""
    return next((peaks for pattern, peaks in _KNOWN if re.search(pattern, device_name)), None)


def theoretical_bandwidth(memory_clock_mhz: float, bus_width_bits: int, data_rate: float = 2) -> float:
    """GB/s = clock × data rate × bytes of the bus.

    ``data_rate`` is transfers a clock as the driver reports the clock: 2 for HBM and for GDDR5, GDDR6 and
    GDDR6X, whose reported clock is half of the data rate (an RTX 2060 reports 7001 MHz for 14 Gb/s).
    ValueError for numbers below 0 or 0.
    """
    for name, value in (("clock", memory_clock_mhz), ("bus width", bus_width_bits), ("data rate", data_rate)):
        if not value > 0:
            raise ValueError(f"the {name} is above 0, not {value!r}")
    return memory_clock_mhz * 1e6 * data_rate * bus_width_bits / 8 / 1e9
