"""The roofline: what a device allows at an arithmetic intensity, and where a result lies under that.

Williams, Waterman and Patterson, "Roofline: an insightful visual performance model", CACM 52 (4), 2009.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fusescope.core.records import Record


@dataclass(frozen=True)
class Ceiling:
    """The two lines of one device and dtype: memory bandwidth in GB/s and arithmetic rate in TFLOP/s."""

    bandwidth_gbps: float
    tflops: float

    @property
    def ridge(self) -> float:
        """The intensity in FLOP per byte from which arithmetic is the limit."""
        return self.tflops * 1e3 / self.bandwidth_gbps


@dataclass(frozen=True)
class Placement:
    """A result on the roofline. intensity: FLOP per byte; rates in TFLOP/s; bound: "memory" or "compute".

    ``share`` of the attainable rate that was reached; above 1 the data came from a cache, or a cost model is
    wrong.
    """

    intensity: float
    tflops: float
    attainable: float
    share: float
    bound: str


def ceiling(ceilings: Mapping[str, Any], dtype: str, unit: str = "matrix") -> Ceiling:
    """The lines that apply to a dtype, from measured ceilings as measure.ceilings gives them.

    unit: "matrix" or "vector". ValueError where that rate or the bandwidth was not measured.
    """
    if unit not in ("matrix", "vector"):
        raise ValueError(f"unit is matrix or vector, not {unit!r}")
    bandwidth, rate = ceilings.get("copy_gbps"), (ceilings.get(f"{unit}_tflops") or {}).get(dtype)
    if not bandwidth or not rate:
        raise ValueError(
            f"no measured {'bandwidth' if not bandwidth else f'{unit} rate for {dtype}'} among these ceilings"
        )
    return Ceiling(bandwidth, rate)


def attainable(intensity: float, ceiling: Ceiling) -> float:
    """TFLOP/s that the device allows at that many FLOP per byte: min(rate, intensity × bandwidth)."""
    return min(ceiling.tflops, intensity * ceiling.bandwidth_gbps / 1e3)


def least_ms(flop: float, moved_bytes: float, ceiling: Ceiling) -> float:
    """The least time in ms that this much arithmetic and traffic (bytes) take on a device: the longer of the
    two, as if they overlapped entirely."""
    return max(flop / (ceiling.tflops * 1e9), moved_bytes / (ceiling.bandwidth_gbps * 1e6))


def place(record: Record, ceiling: Ceiling) -> Placement | None:
    """Where a record stands, by its effective FLOP and least bytes; None where it has no latency or no such
    figures."""
    if record.tflops is None or not record.tflops.effective or not record.gbps:
        return None
    intensity = record.tflops.effective * 1e3 / record.gbps
    most = attainable(intensity, ceiling)
    bound = "memory" if intensity < ceiling.ridge else "compute"
    return Placement(intensity, record.tflops.effective, most, record.tflops.effective / most, bound)
