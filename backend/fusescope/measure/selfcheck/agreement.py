"""Other timers on the same call: torch.utils.benchmark on the CPU; CUDA events, Triton's do_bench and nvbench
on a GPU. The calls are long, so that launch paths and cache states, which timers treat differently, do not
count. On a GPU they are bound by memory: a large product runs at the power limit, where its time depends on
how long the GPU was idle before (fp16, 8192 rows and columns, on an H100: 1.69 ms by this timer, 1.46 by
nvbench, which waits between its calls).
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import torch

from fusescope.measure.selfcheck.row import Row, missing
from fusescope.measure.timing.graph import CudaGraph
from fusescope.measure.timing.timer import CpuEager, CudaEager, Flush

WITHIN = 0.02
_PART, _LIMIT = "agreement", f"within {WITHIN:.0%}"
_ROUNDS = 7  # of both timers in turn
OTHERS = ("CUDA events, eager", "CUDA events, graph", "Triton do_bench, eager cold", "nvbench, eager cold")
MOST = 1 << 29  # elements of each fp32 vector of the sum on a GPU: 1.5 ms on an H200
BYTES = 40  # of memory an element: two vectors and four results here, four vectors in nvbench's process


def elements(memory_bytes: int) -> int:
    """Of each vector, on a GPU with so much memory, of which two thirds are used at most: smaller GPUs are
    slower, so that their calls stay long."""
    return min(MOST, memory_bytes * 2 // 3 // BYTES)


def rows(device: str, step: Callable[[str], None]) -> list[Row]:
    """A line for each other timer, those that cannot be tried here with the reason."""
    if not device.startswith("cuda"):
        step("agreement with torch.utils.benchmark")
        return [_cpu(), *(missing(_PART, name, _LIMIT, "no GPU") for name in OTHERS)]
    a, b = (torch.randn(_elements(device), device=device) for _ in range(2))

    def run():
        return a + b

    found = []
    for name, measure in zip(OTHERS, (_eager, _graph, _do_bench, _nvbench), strict=True):
        step(f"agreement with {name}")
        found.append(measure(name, run, device))
    return found


def agreement(name: str, ours: list[float], theirs: list[float]) -> Row:
    """The ratio of two timers whose samples (ms) were taken in turn: outside the limit only where it is in
    nearly every round."""
    ratios = [o / t for o, t in zip(ours, theirs, strict=True)]
    middle = statistics.median(ratios)
    outside = sum(abs(r - 1) > WITHIN and (r > 1) == (middle > 1) for r in ratios)
    passed = abs(middle - 1) <= WITHIN or (False if outside >= len(ratios) - 1 else None)
    note = (
        ""
        if passed is not None
        else f"rounds from {min(ratios) - 1:+.1%} to {max(ratios) - 1:+.1%}: too noisy"
    )
    figure = f"{middle - 1:+.2%} ({statistics.median(ours):.4g} and {statistics.median(theirs):.4g} ms)"
    return Row(_PART, name, figure, _LIMIT, passed, note)


def _cpu() -> Row:
    from torch.utils.benchmark import Timer

    a, b = (torch.randn(384, 384) for _ in range(2))
    threads = torch.get_num_threads()
    other = Timer("a @ b", globals={"a": a, "b": b}, num_threads=threads)
    sampler = CpuEager(lambda: a @ b)
    ours, theirs = [], []
    for _ in range(_ROUNDS):
        ours.append(statistics.median(sampler.take(20)))
        theirs.append(statistics.median(other.timeit(1).median for _ in range(20)) * 1e3)
    return agreement("torch.utils.benchmark, eager", ours, theirs)


def _events(run: Callable, device: str, calls: int = 10) -> float:
    """Milliseconds per call by two events around calls that are queued behind a delay, written apart from the
    timer."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    with torch.cuda.device(device), torch.no_grad():
        torch.cuda.synchronize()
        torch.cuda._sleep(2_000_000)
        run()
        start.record()
        for _ in range(calls):
            run()
        end.record()
        end.synchronize()
    return start.elapsed_time(end) / calls


def _eager(name: str, run: Callable, device: str) -> Row:
    return _in_turn(name, CudaEager(run, device), lambda: _events(run, device))


def _graph(name: str, run: Callable, device: str) -> Row:
    return _in_turn(name, CudaGraph([run], device, "graph"), lambda: _events(run, device))


def _do_bench(name: str, run: Callable, device: str) -> Row:
    if not find_spec("triton"):
        return missing(_PART, name, _LIMIT, "Triton is not installed")
    from triton.testing import do_bench

    return _in_turn(name, _cold(run, device), lambda: do_bench(run, return_mode="median"))


def _nvbench(name: str, run: Callable, device: str) -> Row:
    """nvbench times the same sum in a process of its own."""
    try:
        there = find_spec("cuda.bench")
    except ModuleNotFoundError:  # no package cuda at all
        there = None
    if not there:
        return missing(_PART, name, _LIMIT, "nvbench (cuda-bench) is not installed")
    sampler, ours, theirs = _cold(run, device), [], []
    try:
        for _ in range(3):
            ours.append(statistics.median(sampler.take(10)))
            theirs.append(_nvbench_ms(device))
    except (RuntimeError, OSError, ValueError, KeyError, subprocess.TimeoutExpired) as e:
        return missing(_PART, name, _LIMIT, f"nvbench failed: {e}")
    return agreement(name, ours, theirs)


def _nvbench_ms(device: str) -> float:
    """The mean GPU time of nvbench's cold measurement, out of its JSON file."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "result.json"
        words = [str(_elements(device)), "--json", str(file), "--devices", device.partition(":")[2] or "0"]
        script = Path(__file__).with_name("nvbench_sum.py")
        done = subprocess.run([sys.executable, script, *words], capture_output=True, text=True, timeout=120)
        if done.returncode:
            raise RuntimeError((done.stderr.strip().splitlines() or ["no message"])[-1])
        (state,) = json.loads(file.read_text())["benchmarks"][0]["states"]
    tags = {s["tag"]: s["data"] for s in state["summaries"]}
    value = next(d["value"] for d in tags["nv/cold/time/gpu/mean"] if d["name"] == "value")
    return float(value) * 1e3


def _elements(device: str) -> int:
    return elements(torch.cuda.get_device_properties(device).total_memory)


def _cold(run: Callable, device: str) -> CudaEager:
    size = torch.cuda.get_device_properties(device).L2_cache_size
    return CudaEager(run, device, Flush(device, size))


def _in_turn(name: str, sampler, other: Callable[[], float]) -> Row:
    ours, theirs = [], []
    for _ in range(_ROUNDS):
        ours.append(statistics.median(sampler.take(10)))
        theirs.append(other())
    return agreement(name, ours, theirs)
