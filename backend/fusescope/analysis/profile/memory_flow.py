"""How many bytes of one launch moved between the levels of a GPU's memory, from Nsight Compute's counters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

SECTOR = 32
"""Bytes of a sector, in which L1 and L2 count."""
_L1 = "l1tex__t_sectors_pipe_lsu_mem_global_op_{}.sum"
_L2 = "lts__t_sectors_srcunit_tex_op_{}.sum"
_HITS = {
    "L1": ("L1/TEX Hit Rate", "l1tex__t_sector_hit_rate.pct"),
    "L2": ("L2 Hit Rate", "lts__t_sector_hit_rate.pct"),
}


@dataclass(frozen=True)
class Link:
    """Bytes that cross from one level to the next: towards the SM (read) and from it (written). level: "L1"
    (between the load/store units and L1), "L2" (between the SMs and L2; TMA included, which passes L1 by) or
    "DRAM" (between L2 and DRAM). hit: of the level's sectors, 0 … 1, None where unknown."""

    level: str
    read: float
    written: float
    hit: float | None = None

    @property
    def bytes(self) -> float:
        return self.read + self.written


_PEAKS = {"L1": "l1tex", "L2": "lts"}
"""Level → its unit in ncu's hierarchical roofline sections."""
_PER_SECOND = {
    "hz": 1.0,
    "cycle/second": 1.0,
    "cycle/msecond": 1e3,
    "cycle/usecond": 1e6,
    "cycle/nsecond": 1e9,
}
"""Unit of a clock → what makes it cycles per second."""


def peaks(metrics: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """GB/s that L1 (of all SMs) and L2 sustain at the clocks of one launch: bytes per cycle times cycles per
    second, as sections such as SpeedOfLight_HierarchicalSingleRooflineChart collect them; {} without them."""
    metrics = list(metrics)
    values = _values(metrics)
    units = {row["metric"]: row.get("unit") for row in metrics}
    found = {}
    for level, unit in _PEAKS.items():
        per_cycle = values.get(f"{unit}__t_bytes.sum.peak_sustained")
        clock = f"{unit}__cycles_elapsed.avg.per_second"
        rate = values.get(clock, 0.0) * _PER_SECOND.get(units.get(clock) or "", 0.0)
        if per_cycle and per_cycle > 0 and rate > 0:
            found[level] = per_cycle * rate / 1e9
    return found


def links(metrics: Iterable[Mapping[str, Any]]) -> list[Link]:
    """The links that the rows of ncu_metrics of one launch know, from the SM outwards; [] without any.

    Atomics and reductions count as written. A level of which one direction is unknown is left out.
    """
    values = _values(metrics)

    def sectors(pattern: str, *ops: str) -> float:
        return SECTOR * sum(values.get(pattern.format(op), 0.0) for op in ops)

    found = []
    for level, pattern, (read, written) in (("L1", _L1, ("ld", "st")), ("L2", _L2, ("read", "write"))):
        if pattern.format(read) in values and pattern.format(written) in values:
            hit = next((values[name] / 100 for name in _HITS[level] if name in values), None)
            out = sectors(pattern, written, "atom", "red")
            found.append(Link(level, sectors(pattern, read), out, hit))
    if "dram__bytes_read.sum" in values and "dram__bytes_write.sum" in values:
        found.append(Link("DRAM", values["dram__bytes_read.sum"], values["dram__bytes_write.sum"]))
    return found


def _values(metrics: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    return {
        row["metric"]: float(row["value"])
        for row in metrics
        if row.get("value") is not None and row["value"] == row["value"]
    }
