"""What uneven work costs on a GPU: blocks of different length put onto the multiprocessors' places one after
another."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

SMS = {
    "GeForce RTX 2060": 30,
    "GeForce RTX 2080 Ti": 68,
    "T4": 40,
    "V100 PCIe": 80,
    "V100 SXM2": 80,
    "A100 40 GB": 108,
    "A100 PCIe 80 GB": 108,
    "A100 SXM 80 GB": 108,
    "GeForce RTX 3090 Ti": 84,
    "GeForce RTX 3090": 82,
    "GeForce RTX 3080": 68,
    "A10": 72,
    "RTX A6000": 84,
    "GeForce RTX 4080 Laptop": 58,
    "GeForce RTX 4080": 76,
    "GeForce RTX 4090": 128,
    "L4": 58,
    "L40S": 142,
    "H200 NVL": 132,
    "H200 SXM": 132,
    "H100 NVL": 132,
    "H100 PCIe": 114,
    "H100 SXM": 132,
}
"""Multiprocessors of the models listed in ``hardware``, by its names; from the same data sheets and
whitepapers."""


@dataclass(frozen=True)
class Schedule:
    """How long blocks take on ``places`` places, in the unit of their lengths (live tiles).

    even: total work over the places, the least there is; makespan: when the last block ends; waves: blocks
    over places.
    """

    blocks: int
    places: int
    even: float
    makespan: float

    @property
    def waves(self) -> float:
        return self.blocks / self.places

    @property
    def busy(self) -> float:
        """Share of the places' time that is work; 1 for no blocks."""
        return self.even / self.makespan if self.makespan else 1.0


def schedule(lengths: Sequence[float], places: int) -> Schedule:
    """Blocks in the order given, each to the place that is free first, which is how a GPU hands out the
    blocks of a grid.

    A block takes its length and nothing else: no cost of launching, no sharing of a multiprocessor's units
    among its blocks. ValueError for fewer than one place or a negative length.
    """
    if places < 1:
        raise ValueError(f"places is at least 1, not {places}")
    if any(length < 0 for length in lengths):
        raise ValueError("the length of a block is not negative")
    free = [0.0] * min(places, max(1, len(lengths)))
    for length in lengths:
        heapq.heapreplace(free, free[0] + length)
    return Schedule(len(lengths), places, float(sum(lengths)) / places, max(free))
