"""The memory of an execution mode as its record holds it, without figures that older records got wrong."""

from __future__ import annotations

from collections.abc import Iterable

from fusescope.core.records import Record

WORDS = {
    "weights_bytes": "weights",
    "kept_bytes": "persistent",
    "graph_pool_bytes": "graph pool",
    "call_bytes": "per call",
    "peak_bytes": "allocator peak",
    "nvml_process_bytes": "process (NVML)",
}
"""Field of a record's ``extra["memory"]`` → what it is called."""
_UNKNOWN = "unknown on this device"
_POOL = "graph pool not measured"
_SHARED = "several modes share torch.compile's graph pool; measure this one alone"
_ONE_PROCESS = "one process measured several modes; measure this one alone"


def figures(record: Record, modes: int) -> tuple[dict[str, int | None], dict[str, str]]:
    """(bytes by the names of WORDS, why those that are None are) of a record. modes: how many the run
    compared in one process.

    Records without a graph pool were made before it was measured: where a call then took nothing, it replayed
    a graph whose memory is not in them.
    """
    memory = (record.extra or {}).get("memory") or {}
    found: dict[str, int | None] = {name: memory.get(name) for name in WORDS}
    why = {name: _UNKNOWN for name, value in found.items() if value is None}
    if not memory or memory.get("kept_bytes") is None:  # a CPU
        return found, why
    if "graph_pool_bytes" not in memory:
        why["graph_pool_bytes"] = _POOL
        if memory.get("call_bytes") == 0:
            lost = ("call_bytes", "peak_bytes")
            found |= dict.fromkeys(lost)
            why |= dict.fromkeys(lost, _POOL)
    elif found["graph_pool_bytes"] is None:
        why |= dict.fromkeys(("graph_pool_bytes", "peak_bytes"), _SHARED)
    if modes > 1:
        found["nvml_process_bytes"], why["nvml_process_bytes"] = None, _ONE_PROCESS
    return found, why


def several(records: Iterable[Record]) -> int:
    """How many modes records are of."""
    return len({record.impl for record in records})
