"""What limits a profiled program: its launches, communication, memory or arithmetic; every verdict cites the
numbers it is based on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fusescope.analysis.profile import communication
from fusescope.analysis.profile.device_time import DeviceTime
from fusescope.analysis.profile.figures import percent, three, time
from fusescope.analysis.profile.single import single_gaps

KINDS = (
    "launch-bound",
    "memory-bound",
    "compute-bound",
    "copy-bound",
    "communication-bound",
    "latency-bound",
    "inconclusive",
)
IDLE_SHARE = 0.25  # of the device's time; below it the launches are no limit worth speaking of
COPY_SHARE = 0.5  # of the device's busy time
UNKNOWN_SHARE = 0.01  # of the device's time; below it idle time of an unknown cause is not mentioned
HIGH = 60.0  # % of speed of light from which Nsight Compute calls a unit well used


@dataclass(frozen=True)
class Verdict:
    """kind: one of KINDS; because: sentences with the numbers; numbers: those figures, by name."""

    kind: str
    because: tuple[str, ...]
    numbers: Mapping[str, float]


def verdict(
    summary: Mapping[str, Any],
    ncu: Sequence[Mapping[str, Any]] = (),
    intensity: float | None = None,
    ridge: float | None = None,
    reached: float | None = None,
    parts: DeviceTime | None = None,
    steps: int = 1,
) -> Verdict:
    """From a profile's summary.json, and where known the rows of ncu_kernels, or FLOP per byte, the device's
    ridge, and the share (0 … 1) of the rate attainable at that intensity that was reached. parts: of the
    devices' time, without which communication is not known; steps: in the profile.

    copy-bound: copies are COPY_SHARE of what the device did. communication-bound: communication while nothing
    computes is the largest part of the device's time, single gaps left out. launch-bound: it idles for
    IDLE_SHARE of its time or more, single gaps left out, and most of that because the host had not launched
    yet, or waited.
    Else by Nsight Compute's speed of light, weighted with each kernel's time: the higher of memory and SM
    decides if it is HIGH, latency-bound where both are lower. Without ncu the arithmetic intensity decides
    (latency-bound where less than HIGH % of the attainable is reached), and without that nothing does.
    """
    numbers: dict[str, float] = {}
    because: list[str] = []
    devices = summary.get("devices") or ()
    span = sum(d["last_ns"] - d["first_ns"] for d in devices)
    if span > 0:
        kind = _of_device(because, numbers, summary, span, parts, steps)
        if kind:
            return Verdict(kind, tuple(because), numbers)
    elif not ncu:
        because.append("the profile holds no activity of a GPU")
    return _of_kernels(because, numbers, ncu, intensity, ridge, reached)


def _of_device(
    because: list[str],
    numbers: dict[str, float],
    summary: Mapping[str, Any],
    span: int,
    parts: DeviceTime | None,
    steps: int,
) -> str | None:
    """What the devices' own time says: "copy-bound", "communication-bound", "launch-bound" or None. Shares of
    time are of the span from the first to the last activity."""
    devices = summary.get("devices") or ()
    busy, copies, kernels = (sum(d[k] for d in devices) for k in ("busy_ns", "copy_ns", "kernel_ns"))
    idle = {cause: row["total_ns"] for cause, row in (summary.get("idle") or {}).items()}
    host = idle.get("host", 0) + idle.get("synchronised", 0)
    numbers |= {"idle_share": 1 - busy / span, "idle_host_share": host / span}
    because.append(_idle_text(idle, host, span, numbers["idle_share"], steps))
    if parts and parts.communication:
        because.append(communication.text(parts))
        numbers["communication_share"] = parts.communication_ns / max(1, parts.kernel_ns)
        numbers["exposed_share"] = parts.whole["exposed_ns"] / span
    single = single_gaps(summary)
    alone = sum(gap["dur_ns"] for gap in single)
    if alone:
        numbers["single_gap_share"] = alone / span
        host -= sum(gap["dur_ns"] for gap in single if gap.get("cause") in ("host", "synchronised"))
    if alone and numbers["idle_share"] >= IDLE_SHARE:
        share = f"{percent(numbers['single_gap_share'])} ({time(alone)})"
        because.append(
            f"{len(single)} single gaps, {share} together, are left out of this verdict"
            if len(single) > 1
            else f"one gap of {share} is left out of this verdict"
        )
    rest = max(1, span - alone)
    idle_share, host_share = max(0, span - busy - alone) / rest, max(0, host) / rest
    if copies + kernels:
        numbers["copy_share"] = copies / (copies + kernels)
        if numbers["copy_share"] >= COPY_SHARE:
            because.append(f"memcpy/memset take {percent(numbers['copy_share'])} of the device's busy time")
            return "copy-bound"
    if parts and (why := communication.largest(parts, summary)):
        because.append(why)
        return "communication-bound"
    if idle_share >= IDLE_SHARE and host_share >= idle_share / 2:
        numbers["launch_idle_share"] = idle_share
        return "launch-bound"
    return None


def _idle_text(idle: Mapping[str, int], host: int, span: int, share: float, steps: int) -> str:
    many = f" ({steps:,} steps)" if steps > 1 else ""
    text = f"the device was idle {percent(share)} of {time(span)}{many}"
    unknown = idle.get("unknown", 0)
    if host or not unknown:
        text += f"; {percent(host / span)} because the host had not launched or was waiting for it"
    if unknown >= UNKNOWN_SHARE * span:
        text += f"; {percent(unknown / span)} for an unknown cause: the next kernel's launch is not recorded"
    return text


def in_short(found: Verdict) -> str:
    """The verdict and its figure in a few words: "launch-bound, 94 % idle", "latency-bound, SM 29 %, memory
    26 %"; where nothing decides, how busy the device was, and "" where not even that is known."""
    numbers = found.numbers
    if found.kind == "launch-bound":
        return f"launch-bound, {100 * numbers['launch_idle_share']:.0f} % idle"
    if found.kind == "copy-bound":
        return f"copy-bound, {100 * numbers['copy_share']:.0f} % copies"
    if found.kind == "communication-bound":
        return f"communication-bound, {100 * numbers['exposed_share']:.0f} % exposed"
    if "sm_percent" in numbers:
        return f"{found.kind}, SM {numbers['sm_percent']:.0f} %, memory {numbers['memory_percent']:.0f} %"
    if found.kind != "inconclusive":
        return found.kind
    return f"device {100 - 100 * numbers['idle_share']:.0f} % busy" if "idle_share" in numbers else ""


def _of_kernels(
    because: list[str],
    numbers: dict[str, float],
    ncu,
    intensity: float | None,
    ridge: float | None,
    reached: float | None,
) -> Verdict:
    rows = [
        r for r in ncu if _known(r, "sm_percent") and _known(r, "memory_percent") and _known(r, "duration_ns")
    ]
    total = sum(r["duration_ns"] for r in rows)
    if total > 0:
        sm, memory = (
            sum(r[k] * r["duration_ns"] for r in rows) / total for k in ("sm_percent", "memory_percent")
        )
        numbers |= {"sm_percent": sm, "memory_percent": memory}
        because.append(
            f"Nsight Compute: SM {sm:.3g} % and memory {memory:.3g} % of speed of light "
            f"over {len(rows)} launch{'es' if len(rows) > 1 else ''}, weighted by time"
        )
        if max(sm, memory) < HIGH:
            because.append(
                f"neither reaches {HIGH:g} %: latency, too few warps or an uneven grid hold both back"
            )
            return Verdict("latency-bound", tuple(because), numbers)
        return Verdict("memory-bound" if memory >= sm else "compute-bound", tuple(because), numbers)
    if ncu and total <= 0:
        wanted = {
            "sm_percent": "SM throughput",
            "memory_percent": "memory throughput",
            "duration_ns": "duration",
        }
        lacks = [word for key, word in wanted.items() if not any(_known(r, key) for r in ncu)]
        because.append(
            f"Nsight Compute's report has no {' and no '.join(lacks) or 'launch with all metrics'} "
            "(its set basic has them)"
        )
    if intensity is not None and ridge is not None:
        numbers |= {"intensity": intensity, "ridge": ridge}
        because.append(f"{three(intensity)} FLOP per byte, and the device's ridge is at {three(ridge)}")
        if reached is not None:
            numbers["reached"] = reached
            because.append(f"the kernels reach {percent(reached)} of what the device allows there")
            if 100 * reached < HIGH:
                return Verdict("latency-bound", tuple(because), numbers)
        return Verdict("memory-bound" if intensity < ridge else "compute-bound", tuple(because), numbers)
    if not ncu:
        because.append(
            "memory or arithmetic: neither a profile of Nsight Compute nor FLOP and bytes are known"
        )
    return Verdict("inconclusive", tuple(because), numbers)


def _known(row: Mapping[str, Any], key: str) -> bool:
    value = row.get(key)
    return value is not None and value == value
