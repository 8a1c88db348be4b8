"""Equal implementations (A/A) and planted slow-downs: what the comparison says where the answer is known.

Planted ones are a softmax behind a delay of known length; the slower one's delay is longer by the planted
share of the whole call. Each run is a comparison as any other, by bench.py.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch

from fusescope.core.records import BenchSpec, Record
from fusescope.core.reporter import Collect, Reporter
from fusescope.measure.bench import Bench
from fusescope.measure.selfcheck.row import Row
from fusescope.measure.subject import WithFunctions
from fusescope.measure.timing.timer import first_call

SHAPES = ((64, 256), (256, 1024), (1000, 33), (512, 2048), (37, 1000))  # rows and columns
PLANTED = (0.03, 0.05)
MOST_PLANTED = 60  # of each, so that 200 equal ones are not 600 comparisons: 57 found are 95 %
FOUND = 0.95  # of the planted slow-downs, on a machine that is quiet
_DELAY_MS = 0.05
_BUDGET_S = 2.0


def equal(device: str, runs: int, seed: int, reporter: Reporter, step: Callable[[str], None]) -> Row:
    """How often one of two equal implementations is called faster: at most once in 200 runs."""
    softmax = {"a": _softmax, "b": lambda x: torch.softmax(x, -1)}
    records = []
    for number in range(runs):
        step(f"equal implementations, {number + 1} of {runs}")
        records.append(_compared(softmax, device, SHAPES[number % len(SHAPES)], seed + number, reporter))
    verdicts = [r.speedup.verdict for r in records if r.speedup]
    false, allowed = sum(v in ("faster", "slower") for v in verdicts), max(1, runs // 200)
    off = [abs(r.speedup.median - 1) for r in records if r.speedup]
    figure = f"{false} of {len(verdicts)} runs name a difference"
    note = f"ratio off by {statistics.median(off):.2%} in the median, {max(off):.2%} at most" if off else ""
    passed = false <= allowed if verdicts else None
    return Row("A/A", "equal implementations", figure, f"at most {allowed}", passed, note)


def planted(
    share: float, device: str, runs: int, seed: int, reporter: Reporter, step: Callable[[str], None]
) -> Row:
    """How a slow-down by ``share`` of the whole call is judged: never the wrong way round, and found unless
    the machine is too noisy to tell."""
    records = []
    for number in range(runs):
        step(f"planted {share:.0%}, {number + 1} of {runs}")
        rows, cols = SHAPES[number % len(SHAPES)]
        short, long = (_slower(extra, device, rows, cols) for extra in (0.0, share))
        records.append(_compared({"a": short, "b": long}, device, (rows, cols), seed + number, reporter))
    verdicts = [r.speedup.verdict for r in records if r.speedup]
    found, wrong = verdicts.count("slower"), sum(v in ("faster", "same") for v in verdicts)
    quiet = not any(v == "inconclusive" for v in verdicts)
    passed = False if wrong else True if verdicts and found >= FOUND * len(verdicts) else None
    figure = f"found in {found} of {len(verdicts)} runs, {wrong} the wrong way round"
    note = "" if quiet else f"{verdicts.count('inconclusive')} inconclusive: the machine is too noisy"
    return Row(
        "planted", f"{share:.0%} slower", figure, f"{FOUND:.0%} found, none the wrong way round", passed, note
    )


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """``count`` other processes that each keep a CPU busy."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def _compared(
    functions: Mapping[str, Callable], device: str, shape: tuple[int, int], seed: int, reporter: Reporter
) -> Record:
    case, settings = {"rows": shape[0], "cols": shape[1]}, {"budget_s": _BUDGET_S, "seed": seed}
    spec = BenchSpec("softmax", tuple(functions), (case,), "a", "float32", device, "warm", **settings)
    return b_over_a(spec, functions, reporter)


def b_over_a(
    spec: BenchSpec, functions: Mapping[str, Callable], reporter: Reporter, bench: type[Bench] = Bench
) -> Record:
    """The record of function b over a, in a comparison of the two; RuntimeError where it has no time."""
    reporter.check()
    reporter.doing(f"{spec.op} {tuple(spec.cases[0].values())}", "a and b", 120.0)
    heard = Collect()
    bench(spec, heard, WithFunctions(spec.op, functions)).run()
    record = next(r for r in heard.records if r.impl == "b")
    if record.status != "ok":
        raise RuntimeError(f"the {spec.op} of the self-check is {record.status}: {record.reason}")
    return record


def _softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1)


def _softmax_ms(device: str, rows: int, cols: int) -> float:
    x = torch.randn(rows, cols, device=device)
    return min(first_call(lambda: lambda: torch.softmax(x, -1), device)[2] for _ in range(20))


def _slower(share: float, device: str, rows: int, cols: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """A softmax behind a delay, the whole of it longer by ``share``. On the CPU that is of what the call
    itself took: with busy processes around, the same softmax takes 0.02 or 10 ms."""
    if device.startswith("cuda"):
        whole = _DELAY_MS + _softmax_ms(device, rows, cols)
        cycles = round((_DELAY_MS + share * whole) * _cycles_per_ms(device))

        def on_gpu(x: torch.Tensor) -> torch.Tensor:
            torch.cuda._sleep(cycles)
            return torch.softmax(x, -1)

        return on_gpu
    clock, delay = time.perf_counter_ns, _DELAY_MS * 1e6

    def on_cpu(x: torch.Tensor) -> torch.Tensor:
        start = clock()
        while clock() < start + delay:
            pass
        out = torch.softmax(x, -1)
        end = start + (clock() - start) * (1 + share)
        while clock() < end:
            pass
        return out

    return on_cpu


def _cycles_per_ms(device: str) -> float:
    """Of torch.cuda._sleep, which counts cycles of the clock as it is now."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    with torch.cuda.device(device):
        for _ in range(2):  # the first one wakes the clocks
            start.record()
            torch.cuda._sleep(20_000_000)
            end.record()
            end.synchronize()
    return 20_000_000 / start.elapsed_time(end)
