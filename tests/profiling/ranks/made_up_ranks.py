"""Traces of a made-up job, whose times by rank are known, in whole µs: rank r computes 100 + 20 r, then an
all-reduce that ends on all ranks 30 after the last one came, with 10 of compute hidden under it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

STEP = 500  # µs
TRANSFER, HIDDEN = 30, 10


def events(
    rank: int,
    ranks: int,
    steps: int = 6,
    clock: float = 0.0,
    name: str = "gemm",
    told: bool = True,
    first: int = 0,
) -> list[dict]:
    """The events of one rank; clock: µs that its times are off by; told: with torch's arguments of a
    collective; first: number of the first step."""
    found, n = [], 0

    def x(cat, what, ts, dur, args=None, pid=1, tid=1):
        event = {"ph": "X", "cat": cat, "name": what, "ts": ts + clock, "dur": dur, "pid": pid, "tid": tid}
        found.append(event | {"args": args or {}})

    def kernel(what, ts, dur, stream, launched, args=None):
        nonlocal n
        n += 1
        x("cuda_runtime", "cudaLaunchKernel", launched, 1, {"correlation": n})
        told = {"correlation": n, "device": 0, "stream": stream, "grid": [8, 1, 1], "block": [128, 1, 1]}
        x("kernel", what, ts, dur, told | (args or {}), pid=0, tid=stream)

    last = 100 + 20 * (ranks - 1)
    for step in range(first, first + steps):
        at = 1000 + STEP * step
        x("user_annotation", f"ProfilerStep#{step}", at, STEP - 1)
        mine = 100 + 20 * rank
        kernel(f"void {name}<64>(float*)", at + 20, mine, 7, at + 10)
        about = {"Collective name": "allreduce", "In msg nelems": 1024, "Out msg nelems": 1024}
        about |= {"Group size": ranks, "dtype": "Float", "Process Group Name": "0"}
        about |= {"Process Group Ranks": str(list(range(ranks)))}
        dur = last - mine + TRANSFER
        start = at + 20 + mine
        kernel(
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclArgs)",
            start,
            dur,
            20,
            at + 12,
            about if told else None,
        )
        kernel("hidden(float*)", start + dur - HIDDEN, HIDDEN, 7, at + 14)
    return found


def write(
    folder: Path,
    ranks: int = 2,
    packed: bool = False,
    hosts: int = 1,
    info: bool = True,
    clocks: dict[int, float] | None = None,
    **settings,
) -> dict[int, Path]:
    """rank → file. hosts: that many of equal size, named; 0: no host in the file; info: with distributedInfo;
    clocks: rank → µs."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {}
    for rank in range(ranks):
        data = {"schemaVersion": 1, "deviceProperties": []}
        if info:
            data["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": ranks}
        if hosts:
            data["host_name"] = f"host{rank * hosts // ranks}"
        data["traceEvents"] = events(rank, ranks, clock=(clocks or {}).get(rank, 0.0), **settings)
        text = json.dumps(data).encode()
        files[rank] = folder / f"job.rank{rank}.json{'.gz' if packed else ''}"
        files[rank].write_bytes(gzip.compress(text) if packed else text)
    return files
