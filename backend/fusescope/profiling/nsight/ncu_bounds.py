"""What cannot be in a report of Nsight Compute, whatever its cells say: the last stop for misread numbers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

_PERCENT = (0.0, 101.0)  # ncu's averages over passes may lie a little above 100
_BOUNDS: dict[str, tuple[str, tuple[float, float]]] = {
    "duration_ns": ("duration in ns", (0.0, 3.6e12)),  # one launch of an hour
    "sm_percent": ("SM throughput in %", _PERCENT),
    "memory_percent": ("memory throughput in %", _PERCENT),
    "dram_percent": ("DRAM throughput in %", _PERCENT),
    "l1_percent": ("L1 throughput in %", _PERCENT),
    "l2_percent": ("L2 throughput in %", _PERCENT),
    "tensor_percent": ("tensor pipe in %", _PERCENT),
    "measured_occupancy": ("measured occupancy", (0.0, 1.01)),
    "ncu_occupancy": ("theoretical occupancy", (0.0, 1.01)),
    "registers": ("registers per thread", (0.0, 256.0)),
    "static_bytes": ("static shared memory in bytes", (0.0, 1 << 20)),
    "dynamic_bytes": ("dynamic shared memory in bytes", (0.0, 1 << 20)),
    "waves": ("waves", (0.0, 1e9)),
    "sms": ("SMs", (1.0, 1024.0)),
    "read_bytes": ("DRAM bytes read", (0.0, float("inf"))),
    "written_bytes": ("DRAM bytes written", (0.0, float("inf"))),
}
_MOST_BYTES_PER_NS = 50_000  # 50 TB/s, several times the DRAM of any GPU
_MISREAD = 10  # times the bound: not a counter's error any more


def keep(rows: Iterable[dict[str, Any]], name: str) -> list[str]:
    """Replace what is out of bounds in rows of ncu_kernels by None; gives a sentence on it, if any.

    ValueError where a value is so far out that the file's numbers must have been misread.
    """
    out: list[str] = []
    for n, row in enumerate(rows):
        for column, (word, (low, high)) in _BOUNDS.items():
            value = row.get(column)
            if value is None or low <= value <= high:
                continue
            says = f"{word} of {value:,.6g} in launch {n} (possible: {low:g} to {high:,.6g})"
            if value > _MISREAD * high:
                raise ValueError(f"{name}: {says}: its numbers were misread or are damaged; use LC_ALL=C")
            out.append(says)
            row[column] = None
        moved = sum(row.get(c) or 0.0 for c in ("read_bytes", "written_bytes"))
        if row.get("duration_ns") and moved > _MOST_BYTES_PER_NS * row["duration_ns"]:
            out.append(f"{moved:,.3g} bytes of DRAM in {row['duration_ns']:,.3g} ns in launch {n}")
            row["read_bytes"] = row["written_bytes"] = None
    more = f" and {len(out) - 1:,} more such values" if len(out) > 1 else ""
    return [f"left out because it cannot be: {out[0]}{more}"] if out else []
