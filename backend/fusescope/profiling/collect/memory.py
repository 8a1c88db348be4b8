"""Memory of one job: the allocator's peak, its snapshot, and what the process took. Needs torch inside."""

from __future__ import annotations

import contextlib
import json
import resource
from collections.abc import Callable, Iterator
from pathlib import Path

_MOST_EVENTS = 200_000  # of allocator history


def allocator(device: str) -> Callable[[], dict]:
    """A reader for telemetry: bytes that torch's allocator has handed out and holds now; empty on the CPU,
    which has none."""
    if device == "cpu":
        return dict

    import torch

    def read() -> dict:
        return {
            "allocated_bytes": torch.cuda.memory_allocated(device),
            "reserved_bytes": torch.cuda.memory_reserved(device),
        }

    return read


@contextlib.contextmanager
def recorded(device: str, target: Callable[[str], Path]) -> Iterator[None]:
    """Record what happens inside: memory.json always, memory-snapshot.pickle (for pytorch.org/memory_viz,
    too) on a GPU.

    memory.json: {"device", "allocated_peak_bytes", "reserved_peak_bytes", "rss_peak_bytes", "note"}; what is
    unknown is null.
    """
    found: dict = {
        "device": device,
        "allocated_peak_bytes": None,
        "reserved_peak_bytes": None,
        "rss_peak_bytes": None,
        "note": None,
    }
    if device == "cpu":
        found["note"] = "torch keeps no count of CPU memory; the peak is that of the whole process"
        yield
    else:
        import torch

        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        torch.cuda.memory._record_memory_history(max_entries=_MOST_EVENTS, stacks="python")
        try:
            yield
            torch.cuda.synchronize(device)
            torch.cuda.memory._dump_snapshot(str(target("memory-snapshot.pickle")))
        finally:
            torch.cuda.memory._record_memory_history(enabled=None)
        found["allocated_peak_bytes"] = torch.cuda.max_memory_allocated(device)
        found["reserved_peak_bytes"] = torch.cuda.max_memory_reserved(device)
    found["rss_peak_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    target("memory.json").write_text(json.dumps(found, indent=1))
