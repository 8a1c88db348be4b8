"""What this device can do at most, measured: the ceilings of the roofline and the yardstick of the alarm.

Each figure is the best of several repetitions, because a ceiling that other load has pulled down is none.
They are kept per device, driver, torch and thread count in the user's runtime folder, with their date; a
second measurement can only raise them, so what was measured by an earlier rule (_RULE) is measured anew.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import Any

import torch

from fusescope.core import whole_files
from fusescope.core.machine import environment, runtime
from fusescope.measure.timing.graph import CudaGraph

_HOW = {
    "copy_gbps": "bytes read + written by a copy (or negation, the faster) of fp32 buffers "
    "far larger than the caches",
    "read_gbps": "bytes read by the sum of such a buffer",
    "l2_gbps": "bytes read + written by a negation of fp32 that fits in the last-level cache, "
    "best over sizes",
    "matrix_tflops": "torch.matmul of square matrices, per dtype; float32 on a GPU with TF32, "
    "which is its tensor cores' format",
    "vector_tflops": "fp32 torch.matmul without TF32: multiply-adds of the vector units, "
    "in which the 16-bit dtypes are computed too",
}


_RULE = 2  # 1 took single figures of CPU time, which a hypervisor can bring down to 0
_PIECE = 32768  # elements: what torch gives to one thread
_SHARES = (
    2,
    4,
    8,
    32,
    128,
    512,
)  # of the last-level cache; the smallest fit in a core's own and take one thread


def measure(device: str, dtypes: Iterable[str] = ("float32",), refresh: bool = False) -> dict[str, Any]:
    """Ceilings of "cuda:N" or "cpu": copy_gbps, read_gbps, l2_gbps (GB/s = 1e9 bytes/s), matrix_tflops
    {dtype: TFLOP/s}, vector_tflops {dtype: TFLOP/s}, how (a sentence a figure), device_name and measured
    (Unix seconds).

    From the cache where it has them; ``refresh`` measures again and keeps the larger. At most some 2 s on a
    CPU.
    """
    facts = environment.collect(device)
    key, file = _key(facts, device), runtime.private() / "ceilings.json"
    kept = whole_files.read_object(file).get(key, {})
    missing = [d for d in dtypes if refresh or d not in kept.get("matrix_tflops", {})]
    if kept and not missing and not refresh:
        return kept
    found = dict(kept) or {
        "how": _HOW,
        "device_name": facts.get("device_name"),
        "matrix_tflops": {},
        "vector_tflops": {},
    }
    with torch.no_grad():
        if refresh or not kept:
            for name, value in _bandwidths(device, facts).items():
                found[name] = max(value, found.get(name) or 0.0)
        rates, vector = dict(found["matrix_tflops"]), dict(found["vector_tflops"])
        if missing:
            fp32 = max(_matrix_tflops(device, "float32", tf32=False), *vector.values(), 0.0)
            vector = dict.fromkeys((*vector, *missing), fp32)
        cuda = device.startswith("cuda")
        for dtype in missing:
            same = dtype == "float32" and not cuda  # a CPU has one unit for both
            rates[dtype] = max(
                fp32 if same else _matrix_tflops(device, dtype, tf32=cuda), rates.get(dtype, 0.0)
            )
    found |= {"matrix_tflops": rates, "vector_tflops": vector, "measured": time.time()}
    if cuda:
        torch.cuda.empty_cache()
    whole_files.replace(file, json.dumps(whole_files.read_object(file) | {key: found}, indent=1))
    return found


def _bandwidths(device: str, facts: dict) -> dict[str, float]:
    cuda = device.startswith("cuda")
    cache = (facts.get("l2_bytes") if cuda else facts.get("llc_bytes")) or 32 << 20
    size = min(max(4 * cache, 64 << 20 if not cuda else 1 << 30), 1 << 30 if not cuda else 1 << 32)
    if cuda:
        size = min(size, torch.cuda.mem_get_info(device)[0] // 4)  # others may hold most of the memory
    source = torch.rand(size // 4, device=device)
    target = torch.empty_like(source)
    copy = (
        2
        * size
        / min(
            _best_s(lambda: target.copy_(source), device),
            _best_s(lambda: torch.neg(source, out=target), device),
        )
    )
    read = size / _best_s(lambda: torch.sum(source), device)
    if not cuda:
        copy = max(copy, 8 * _PIECE / _piece_s(lambda a, b: torch.neg(a, out=b), source, target))
        read = max(read, 4 * _PIECE / _piece_s(lambda a, b: torch.sum(a), source, target))
    inside = max(_cached_rate(source, target, cache // share // 8, device) for share in _SHARES)
    return {"copy_gbps": copy / 1e9, "read_gbps": read / 1e9, "l2_gbps": max(inside, copy) / 1e9}


def _piece_s(
    run: Callable[[torch.Tensor, torch.Tensor], Any], source: torch.Tensor, target: torch.Tensor
) -> float:
    """Median seconds of ``run`` on one piece after the other of buffers far larger than the caches: one
    thread's share of the memory, and the better figure where other load keeps the threads of a large call
    waiting for each other."""
    pieces = zip(source.split(_PIECE), target.split(_PIECE))
    took, spent = zip(*(_timed(partial(run, a, b)) for a, b in pieces))
    return min(statistics.median(took), statistics.median(spent))


def _timed(run: Callable[[], Any]) -> tuple[float, float]:
    """Seconds of a call on the CPU: by the clock, and that all threads of this process were on a CPU.

    The second is about the least that an undisturbed call takes, and other load does not lengthen it. One
    such figure says little: time that a hypervisor takes is booked late, against a call that lost none, and
    the clock of CPU time may then stand still over a whole call. So it is used as a median."""
    start, spent = time.perf_counter(), time.process_time()
    run()
    took, spent = time.perf_counter() - start, time.process_time() - spent
    return took, spent if _counts_microseconds() else took


@cache
def _counts_microseconds() -> bool:
    """Whether the clock of a process's CPU time goes on continuously; some systems count whole ticks."""
    steps = []
    for _ in range(5):
        first = time.process_time()
        while (step := time.process_time() - first) == 0:
            pass
        steps.append(step)
    return min(steps) < 5e-6


def _cached_rate(source: torch.Tensor, target: torch.Tensor, count: int, device: str) -> float:
    """Bytes per second of a copy of ``count`` fp32 (source and target together 8 * count bytes) that stays in
    cache."""
    count = min(count, source.numel())
    a, b = source[:count], target[:count]
    if device.startswith("cuda"):
        return 8 * count / (min(CudaGraph([lambda: torch.neg(a, out=b)], device, "graph").take(10)) / 1e3)
    return 8 * count / _best_s(lambda: torch.neg(a, out=b), device, inner=max(1, (1 << 20) // count))


def _matrix_tflops(device: str, dtype: str, tf32: bool) -> float:
    """The best rate over sizes: 8192 on a GPU; on a CPU from 64 (one thread, so that other load hardly
    matters) up to the first that takes longer than 30 ms, because a dtype may have matrix instructions there
    or be a hundred times slower."""
    sizes = (64, 128, 256, 512, 1024, 2048)
    if device.startswith("cuda"):
        sizes = (8192,) if torch.cuda.mem_get_info(device)[0] > 2 << 30 else (4096,)
    was, best = torch.get_float32_matmul_precision(), 0.0
    try:
        torch.set_float32_matmul_precision("high" if tf32 else "highest")
        for n in sizes:
            a, b = (torch.randn(n, n, device=device).to(getattr(torch, dtype)) for _ in range(2))
            took = _best_s(partial(torch.matmul, a, b), device, seconds=0.05)
            best = max(best, 2 * n**3 / took / 1e12)
            if took > 0.03:
                break
    finally:
        torch.set_float32_matmul_precision(was)
    return best


def _best_s(run: Callable[[], Any], device: str, inner: int = 1, seconds: float = 0.12) -> float:
    """Seconds of a call, undisturbed: the shortest of repeated ones, at least five, for ``seconds``; on a CPU
    their median CPU time where that is less."""
    cuda = device.startswith("cuda")
    run()
    took, spent, begun = [], [], time.perf_counter()
    while len(took) < 5 or time.perf_counter() - begun < seconds:
        if cuda:
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            with torch.cuda.device(device):
                start.record()
                for _ in range(inner):
                    run()
                end.record()
                end.synchronize()
            took.append(start.elapsed_time(end) / 1e3)
        else:
            by_clock, on_cpu = _timed(lambda: [run() for _ in range(inner)])
            took.append(by_clock)
            spent.append(on_cpu)
    return min(*took, *([statistics.median(spent)] if spent else [])) / inner


def _key(facts: dict, device: str) -> str:
    cuda = device.startswith("cuda")
    who = facts.get("device_uuid") if cuda else f"{facts.get('cpu_name')} x {torch.get_num_threads()}"
    parts = (who, facts.get("driver") if cuda else "cpu", torch.__version__, f"rule {_RULE}")
    return " | ".join(map(str, parts))
