"""Latency and bandwidth of the collectives between the ranks, by size."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from fusescope.analysis.scaling import links
from fusescope.measure.parallel.world import World
from fusescope.models.parallel import groups as process_groups

SIZES = {
    "gloo": tuple(4096 << k for k in range(0, 13, 3)),  # 4 KiB … 16 MiB
    "nccl": tuple(4096 << k for k in range(0, 17, 2)),  # 4 KiB … 256 MiB: hidden states of a large batch
}
TRAIN = {"gloo": 1, "nccl": 8}
"""Calls between two waits: within a model the host is ahead of a GPU, and does not wait for each call."""
_SAMPLES, _WARM_UP = 15, 3
_BUDGET_S = 0.3  # for one collective and size


def measure(world: World, check: Callable[[], None]) -> dict[str, Any]:
    """{"backend", "ranks", "points": [{collective, ranks, bytes, ms}], "links": [Link …]}: medians over
    rounds of the slowest rank, over all ranks and, of more than two, over the first two. Equal at all
    ranks."""
    counts = sorted({2, world.size})
    groups = {n: process_groups.of(tuple(range(n))) for n in counts}
    points = []
    for collective in links.COLLECTIVES:
        for ranks in counts if collective != "send_recv" else (2,):
            for size in SIZES[world.backend]:
                world.decide(check)
                ms = _one(world, groups[ranks], collective, ranks, size)
                points.append({"collective": collective, "ranks": ranks, "bytes": size, "ms": ms})
    fitted = [
        links.fit(c, [(p["ranks"], p["bytes"], p["ms"] / 1e3) for p in points if p["collective"] == c])
        for c in links.COLLECTIVES
    ]
    return {
        "backend": world.backend,
        "ranks": world.size,
        "points": points,
        "links": [link.to_json() for link in fitted],
    }


def _one(world: World, group: Any, collective: str, ranks: int, size: int) -> float:
    """Median ms of one collective on ``size`` bytes of float32."""
    member = world.rank < ranks
    work = _call(world, group, collective, ranks, size) if member else None
    took, begun, train = [], time.perf_counter(), TRAIN[world.backend]
    for number in range(_WARM_UP + _SAMPLES):
        world.barrier()
        start = time.perf_counter()
        if work:
            for _ in range(train):
                work()
            world.wait()
        own = (time.perf_counter() - start) * 1e3 / train if member else 0.0
        slowest = world.gather(own)
        if number >= _WARM_UP and world.first:
            took.append(max(slowest))
        over = len(took) >= 3 and time.perf_counter() - begun > _BUDGET_S
        if world.decide(lambda over=over: over):
            break
    return world.decide(lambda: statistics.median(took))


def _call(world: World, group: Any, collective: str, ranks: int, size: int) -> Callable[[], None]:
    whole = torch.zeros(size // 4, device=world.device)
    if collective == "all_reduce":
        return lambda: dist.all_reduce(whole, group=group)
    if collective == "all_gather":
        part = whole[: whole.numel() // ranks].clone()
        into = torch.zeros(part.numel() * ranks, device=world.device)
        gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
        return lambda: gather(into, part, group=group)
    if world.rank == 0:
        return lambda: dist.send(whole, 1, group=group)
    return lambda: dist.recv(whole, 0, group=group)
