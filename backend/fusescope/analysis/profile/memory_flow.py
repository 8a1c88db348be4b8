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


def links(metrics: Iterable[Mapping[str, Any]]) -> list[Link]:
    """The links that the rows of ncu_metrics of one launch know, from the SM outwards; [] without any.

    Atomics and reductions count as written. A level of which one direction is unknown is left out.
    """
    values = {
        row["metric"]: float(row["value"])
        for row in metrics
        if row.get("value") is not None and row["value"] == row["value"]
    }

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
