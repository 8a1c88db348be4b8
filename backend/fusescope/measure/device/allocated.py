"""What torch's allocator holds on a GPU: tensors outside the private pools of CUDA graphs, and those pools.

A graph's tensors live in a pool of its own. What is freed inside a pool stays the pool's, so that replays may
write there: ``memory_allocated`` does not count it and ``max_memory_allocated`` of a replay is nothing. What
a graph holds is therefore the size of its pool's segments (torch.cuda.memory_snapshot, "segment_pool_id").
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

_COMMON = (0, 0)
"""The pool that eager calls allocate from."""


@dataclass(frozen=True)
class Held:
    """Bytes: tensors (allocated outside private pools); pools: id → segments of that private pool."""

    tensors: int
    pools: Mapping[tuple[int, int], int]


def of(segments: Iterable[Mapping[str, Any]], device: int) -> Held:
    """What segments, as torch.cuda.memory_snapshot() gives them, hold on the device of that number."""
    tensors, pools = 0, {}
    for segment in segments:
        if segment["device"] != device:
            continue
        pool = tuple(segment["segment_pool_id"])
        if pool == _COMMON:
            tensors += segment["allocated_size"]
        else:
            pools[pool] = pools.get(pool, 0) + segment["total_size"]
    return Held(tensors, pools)


def on(device: str) -> Held:
    """What is held on a CUDA device now, after all that was launched there."""
    import torch

    torch.cuda.synchronize(device)
    return of(torch.cuda.memory_snapshot(), torch.device(device).index or 0)


def grown(before: Held, after: Held, graph: bool) -> tuple[int, int | None]:
    """(bytes of tensors, bytes of graph pools) that were added from ``before`` to ``after``.

    graph: whether CUDA graphs were made in between. Pools that existed before are another's: torch.compile
    keeps one pool for all its graphs on a device, and reuses in it what an earlier mode's graphs left. What a
    second one takes of it cannot be told, so that the answer is None.
    """
    fresh = {pool: size for pool, size in after.pools.items() if pool not in before.pools}
    pools = sum(fresh.values()) if fresh or not graph else None
    return max(0, after.tensors - before.tensors), pools
