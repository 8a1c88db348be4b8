"""Faster than the hardware allows: the sign of an error in the cost model, the kernel or the timer, never a
record.

A time is impossible when it is below 0.9 x the least time that the work takes at the measured ceilings:
FLOP over the arithmetic rate, bytes over the bandwidth. Cold: all bytes over memory bandwidth. Warm: what
fits in L2 over L2 bandwidth, the rest over memory bandwidth.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fusescope.core.records import Time
from fusescope.core.reporter import Reporter
from fusescope.measure.device import ceilings
from fusescope.ops.base import Cost

SLACK = 0.9
CEILING_RETRIES = 3  # measurements of the ceilings before an alarm holds: other load may have lowered them


class Alarm:
    """Compares times with the ceilings of one device. ``cache_bytes``: of its L2 or last-level cache."""

    def __init__(self, device: str, dtype: str, cache_bytes: int | None, reporter: Reporter):
        self.device, self.dtype, self.cache_bytes, self.reporter = device, dtype, cache_bytes, reporter
        self._measure()

    def look(self, name: str, times: Mapping[str, Time], cost: Cost) -> str | None:
        """The sentence for the record where a time (by mode) is impossible, else None."""
        for _ in range(CEILING_RETRIES):
            if (why := self._impossible(times, cost)) is None:
                return None
            self.reporter.log(f"{name}: {why}; measuring the ceilings again")
            self._measure(refresh=True)
        return self._impossible(times, cost)

    def _measure(self, refresh: bool = False) -> None:
        self.ceilings = ceilings.measure(self.device, (self.dtype,), refresh=refresh)
        self.reporter.environment(ceilings=self.ceilings)

    def _impossible(self, times: Mapping[str, Time], cost: Cost) -> str | None:
        for mode, time in times.items():
            bound = bound_ms(cost, self.dtype, mode.endswith("_cold"), self.ceilings, self.cache_bytes)
            if why := impossible(time.median, mode, bound):
                return why
        return None


def bound_ms(
    cost: Cost, dtype: str, cold: bool, ceilings: Mapping[str, Any], l2_bytes: int | None
) -> tuple[float, str]:
    """The least time in ms and what sets it. FLOP are the effective ones: a kernel may skip all the rest."""
    memory = max(
        ceilings["copy_gbps"], ceilings.get("read_gbps") or 0
    )  # a kernel may read far more than it writes
    l2 = 0 if cold or not ceilings.get("l2_gbps") else min(cost.bytes, l2_bytes or 0)
    by_bytes = (cost.bytes - l2) / memory / 1e6 + (l2 / ceilings["l2_gbps"] / 1e6 if l2 else 0.0)
    rate = max(
        ceilings["vector_tflops"][dtype], ceilings["matrix_tflops"][dtype] if cost.unit == "matrix" else 0.0
    )
    rate *= cost.peaks
    by_flop = cost.flop_effective / rate / 1e9
    if by_flop > by_bytes:
        return by_flop, f"{cost.flop_effective:.4g} FLOP at {rate:.4g} TFLOP/s"
    at = f"{memory:.4g} GB/s" + (
        f" and {ceilings['l2_gbps']:.4g} GB/s of cache for {l2:.4g} of them" if l2 else ""
    )
    return by_bytes, f"{cost.bytes:.4g} bytes at {at}"


def impossible(ms: float, mode: str, bound: tuple[float, str]) -> str | None:
    """The sentence for a record where ``ms`` is below what the hardware allows, else None."""
    least, what = bound
    if ms >= SLACK * least:
        return None
    said = f"{mode} took {ms:.4g} ms, but the hardware needs {least:.4g} ms ({what})"
    return f"{said}: the cost model, the kernel or the timer is wrong"
