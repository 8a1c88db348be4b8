"""What to do about a device that waits, for the host's launches, between kernels, in single gaps; and about
the profiler's own cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fusescope.analysis.profile.figures import percent, time
from fusescope.analysis.profile.recommendation import WORTH, Recommendation, shortened

HOST_BOUND = 0.25  # of the device's time spent waiting for the host: what the profiler costs it then counts
_WAITS = {
    "host": "the host had not launched",
    "synchronised": "the host waited for the device",
    "profiler": "the profiler worked",
    "launched": "launched before, dependency or latency",
    "unknown": "no launch known",
}
Gaps = Sequence[Mapping[str, Any]]


def host_share(summary: Mapping[str, Any], single: Gaps, span: int) -> float:
    """The share of the time (span, without single gaps) in which the device waits for the host."""
    return sum(_without(summary, single, cause)[0] for cause in ("host", "synchronised")) / span


def waits(
    summary: Mapping[str, Any], single: Gaps, span: int, steps: int, measured_ns: float | None
) -> Iterable[Recommendation]:
    """For the launch path, synchronisation, and gaps between launched kernels; ``advice.recommend`` says what
    is given."""
    whole = measured_ns * steps if measured_ns else span
    ns, count, many = _without(summary, single, "host")
    if ns >= WORTH * span and whole > span - ns:
        kernels = (summary.get("rows") or {}).get("kernels", 0)
        real = f" Without the profiler a step takes {time(measured_ns)}." if measured_ns else ""
        yield Recommendation(
            "Capture the step in a CUDA graph",
            f"{many} gaps, {time(ns / count)} on average, wait for the host to launch the next of "
            f"{kernels:,} kernels{_per_step(ns, span, steps, single)}.{real} torch.cuda.graph, or "
            'torch.compile(mode="reduce-overhead"), launches them at once.',
            whole / max(1, span - ns),
            "Timeline",
        )
    ns, count, many = _without(summary, single, "synchronised")
    if ns >= WORTH * span and whole > span - ns:
        yield Recommendation(
            "Remove synchronisation from the step",
            f"{many} gaps, {time(ns)} in total, begin with a call in which the host waits for the device: "
            ".item(), .cpu(), printing a tensor, cudaMalloc of a first allocation.",
            whole / max(1, span - ns),
            "Timeline",
        )
    ns, count, many = _without(summary, single, "launched")
    if ns >= WORTH * span:
        yield Recommendation(
            "Launch fewer, larger kernels",
            f"{many} gaps, {time(ns / count)} on average, lie between kernels that were launched in time: "
            "start and end of kernels, or dependencies. Fuse kernels, or overlap them by programmatic "
            "dependent launch.",
            span / max(1, span - ns),
            "Time breakdown",
        )


def alone(single: Gaps, whole: int) -> list[Recommendation]:
    """For the longest single gaps, each a share of ``whole`` ns."""
    return [
        Recommendation(
            f"Look at one gap of {time(gap['dur_ns'])}",
            f"Before {_kernel(gap.get('after'))}, after {_kernel(gap.get('before'))}: "
            f"{percent(gap['dur_ns'] / whole)} of {time(whole)} by itself "
            f"({_WAITS.get(str(gap.get('cause')), 'unknown cause')}). Start-up, a first allocation or a "
            "pause: warm up before profiling, or leave it out.",
            None,
            "Timeline",
        )
        for gap in single[:3]
        if gap["dur_ns"] >= WORTH * whole
    ]


def profiler_cost(
    summary: Mapping[str, Any], single: Gaps, span: int, steps: int, measured_ns: float | None
) -> list[Recommendation]:
    """Where the profiler recorded work of its own, or where the device waits for the host, which it slows
    down."""
    gaps = _without(summary, single, "profiler")[0]
    own = sum(v["total_ns"] for k, v in (summary.get("totals") or {}).items() if "overhead" in k.lower())
    share, words = host_share(summary, single, span), []
    if gaps >= WORTH * span or own >= WORTH * span:
        words.append(
            f"The profiler recorded {time(max(own, gaps))} of work of its own, {time(gaps)} of it in idle "
            "gaps."
        )
    if share >= HOST_BOUND and measured_ns and measured_ns < span / steps:
        words.append(f"A step takes {time(span / steps)} here, {time(measured_ns)} without the profiler.")
    elif share >= HOST_BOUND:
        rows = summary.get("rows") or {}
        counts = (("operator", rows.get("operators")), ("API call", rows.get("launches")))
        each = " and ".join(f"{n:,} {word}{'s' * (n > 1)}" for word, n in counts if n) or "call"
        words.append(
            f"It adds time to each of the host's {each}, for which the device waits: without the profiler it "
            "waits less, and there is less to gain."
        )
    if not words:
        return []
    says = f"{' '.join(words)} Take step times from a benchmark; profile without stacks, shapes and memory."
    return [Recommendation("Allow for the profiler's own cost", says, None, "Timeline")]


def _without(summary: Mapping[str, Any], single: Gaps, cause: str) -> tuple[int, int, str]:
    """(ns, gaps, how many in words) of a cause without its single gaps."""
    row = (summary.get("idle") or {}).get(cause) or {"total_ns": 0, "gaps": 0}
    out = [gap["dur_ns"] for gap in single if gap.get("cause") == cause]
    count = row["gaps"] - len(out)
    return (
        max(0, row["total_ns"] - sum(out)),
        max(1, count),
        f"{count:,} of {row['gaps']:,}" if out else f"{count:,}",
    )


def _per_step(ns: int, span: int, steps: int, single: Gaps) -> str:
    """The share of a step, and what of it is left out."""
    if steps < 2:
        return ""
    left = sum(gap["dur_ns"] for gap in single) / steps
    out = f" ({time(span / steps + left)} less {time(left)} of single gaps)" if single else ""
    return f", {time(ns / steps)} of {time(span / steps)} per step{out}"


def _kernel(name: str | None) -> str:
    return shortened(name, 60) if name else "an unnamed activity"
