"""Records of the same comparison from several processes as one record for each implementation and case."""

from __future__ import annotations

import math
import statistics as plain
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from fusescope.analysis.statistics import Interval, enough, interval_of_processes, ratio_of_processes
from fusescope.core.records import MODES, Rate, Record, Speedup, Time
from fusescope.measure.compare import ALIKE, Stop

Found = Mapping[tuple[str, str], Record]
"""What one process found, by case_key and implementation."""


def join(found: Sequence[Found], baseline: str, stop: Stop) -> Iterator[Record]:
    """The records of all processes together, in the order of the first.

    A time is the geometric mean of the processes' medians, so that the ratio of two is the mean of their
    ratios; its interval, like that of the speed-up, holds for a further process. It converged where it did in
    each process, or where the processes together have the samples and the precision that ``stop`` wants: slow
    calls have few samples in each. What failed in any process failed.
    """
    for key in dict.fromkeys(k for process in found for k in process):
        several = [process[key] for process in found if key in process]
        failed = next(((n, r) for n, r in enumerate(several, 1) if r.status != "ok"), None)
        if failed:
            number, record = failed
            others = sum(r.status == "ok" for r in several)
            where = f"in process {number} of {len(found)}: " if others else ""
            yield replace(record, reason=where + record.reason)
            continue
        yield _joined(several, [process.get((key[0], baseline)) for process in found], stop)


def _joined(several: Sequence[Record], baselines: Sequence[Record | None], stop: Stop) -> Record:
    first = several[0]
    times = {}
    for mode in MODES:
        own = [r.time_of(mode) for r in several]
        base = [b and b.time_of(mode) for b in baselines]
        times[mode] = _time(own, stop, _apart(base, own))
    times["first"] = plain.median(r.time_ms.first for r in several)
    whole = replace(first, time_ms=replace(first.time_ms, **times))
    worst = max((r.accuracy for r in several if r.accuracy), key=lambda a: a.max_abs, default=None)
    faster, conditions = first.ms / whole.ms, [r.conditions for r in several]
    rates = first.tflops and Rate(
        *(rate and rate * faster for rate in (first.tflops.effective, first.tflops.executed))
    )
    return replace(
        whole,
        accuracy=worst,
        speedup=_speedup(several, baselines, stop),
        tflops=rates,
        gbps=first.gbps and first.gbps * faster,
        throttled=any(r.throttled for r in several),
        conditions=next((c for c in conditions if c and c.busy), conditions[0]),
    )


def _apart(baselines: Sequence[Time | None], several: Sequence[Time | None]) -> float:
    """The logarithm of how many times as fast as the baseline they are; 0.0 where a time is missing."""
    if not all(baselines) or not all(several):
        return 0.0
    return sum(math.log(b.median / t.median) for b, t in zip(baselines, several, strict=True)) / len(several)


def _time(several: Sequence[Time | None], stop: Stop, apart: float) -> Time | None:
    """None where a process has no time in this mode."""
    if not all(several):
        return None
    interval = interval_of_processes(
        [t.median for t in several], [Interval(t.median, t.low, t.high) for t in several]
    )
    count = sum(t.n for t in several)
    precise = count >= stop.min_samples and interval.relative_width < enough(stop.precision, abs(apart))
    known = precise or all(t.converged for t in several)
    return Time(interval.median, interval.low, interval.high, count, known)


def _speedup(several: Sequence[Record], baselines: Sequence[Record | None], stop: Stop) -> Speedup | None:
    """None where a process compared nothing, or another mode than the first."""
    ratios = [r.speedup for r in several]
    if (
        not all(ratios)
        or len({s.of for s in ratios}) > 1
        or not all(b and b.status == "ok" for b in baselines)
    ):
        return None
    mode = ratios[0].of
    if several[0].impl == baselines[0].impl:
        return replace(ratios[0], processes=len(several))
    own, base = [r.time_of(mode) for r in several], [b.time_of(mode) for b in baselines]
    apart = _apart(base, own)
    within = [Interval(s.median, *(s.sampled or (s.low, s.high))) for s in ratios]
    interval = ratio_of_processes([s.median for s in ratios], within, math.exp(apart))
    far = abs(apart) > math.log(ALIKE)  # where the first sample of a turn does not decide (compare.py)
    known = far and all(t.converged for t in (_time(base, stop, apart), _time(own, stop, apart)))
    return Speedup(
        mode,
        interval.median,
        interval.low,
        interval.high,
        ratios[0].same_within,
        len(several),
        known or all(s.converged for s in ratios),
    )
