"""What limits a profiled program: its launches, memory or arithmetic; every verdict cites the numbers it
stands on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

KINDS = ("launch-bound", "memory-bound", "compute-bound", "copy-bound", "latency-bound", "cannot tell")
IDLE_SHARE = 0.25  # of the device's time; below it the launches are no limit worth speaking of
COPY_SHARE = 0.5  # of the device's busy time
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
) -> Verdict:
    """From a profile's summary.json, and where known the rows of ncu_kernels, or FLOP per byte, the device's
    ridge, and the share (0 … 1) of the rate attainable at that intensity that was reached.

    launch-bound: the device idles for IDLE_SHARE of its time or more, and most of that because the host had
    not launched yet, or waited for it. copy-bound: copies are COPY_SHARE of what it did. Else by Nsight
    Compute's speed of light, weighted with each kernel's time: the higher of memory and SM decides if it is
    HIGH, latency-bound where both are lower. Without ncu the arithmetic intensity decides (latency-bound
    where less than HIGH % of the attainable is reached), and without that nothing does.
    """
    numbers: dict[str, float] = {}
    because: list[str] = []
    devices = summary.get("devices") or ()
    span = sum(d["last_ns"] - d["first_ns"] for d in devices)
    if span > 0:
        busy = sum(d["busy_ns"] for d in devices)
        idle = {cause: row["total_ns"] for cause, row in (summary.get("idle") or {}).items()}
        numbers["idle_share"] = 1 - busy / span
        numbers["idle_host_share"] = (idle.get("host", 0) + idle.get("synchronised", 0)) / span
        because.append(
            f"the device was idle {_percent(numbers['idle_share'])} of {_time(span)}; "
            f"{_percent(numbers['idle_host_share'])} because the host had not launched or was waiting for it"
        )
        if numbers["idle_share"] >= IDLE_SHARE and numbers["idle_host_share"] >= numbers["idle_share"] / 2:
            return Verdict("launch-bound", tuple(because), numbers)
        copies, kernels = (sum(d[k] for d in devices) for k in ("copy_ns", "kernel_ns"))
        if copies + kernels:
            numbers["copy_share"] = copies / (copies + kernels)
            if numbers["copy_share"] >= COPY_SHARE:
                because.append(
                    f"memcpy/memset take {_percent(numbers['copy_share'])} of the device's busy time"
                )
                return Verdict("copy-bound", tuple(because), numbers)
    elif not ncu:
        because.append("the profile holds no activity of a GPU")
    return _of_kernels(because, numbers, ncu, intensity, ridge, reached)


def in_short(found: Verdict) -> str:
    """The verdict and its figure in a few words: "launch-bound, 94 % idle", "latency-bound, SM 29 %, memory
    26 %"; where nothing decides, how busy the device was, and "" where not even that is known."""
    numbers = found.numbers
    if found.kind == "launch-bound":
        return f"launch-bound, {100 * numbers['idle_share']:.0f} % idle"
    if found.kind == "copy-bound":
        return f"copy-bound, {100 * numbers['copy_share']:.0f} % copies"
    if "sm_percent" in numbers:
        return f"{found.kind}, SM {numbers['sm_percent']:.0f} %, memory {numbers['memory_percent']:.0f} %"
    if found.kind != "cannot tell":
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
        because.append(f"{_three(intensity)} FLOP per byte, and the device's ridge is at {_three(ridge)}")
        if reached is not None:
            numbers["reached"] = reached
            because.append(f"the kernels reach {_percent(reached)} of what the device allows there")
            if 100 * reached < HIGH:
                return Verdict("latency-bound", tuple(because), numbers)
        return Verdict("memory-bound" if intensity < ridge else "compute-bound", tuple(because), numbers)
    if not ncu:
        because.append(
            "memory or arithmetic: neither a profile of Nsight Compute nor FLOP and bytes are known"
        )
    return Verdict("cannot tell", tuple(because), numbers)


def _known(row: Mapping[str, Any], key: str) -> bool:
    value = row.get(key)
    return value is not None and value == value


def _time(ns: float) -> str:
    unit, divisor = ("s", 1e9) if ns >= 1e9 else ("ms", 1e6) if ns >= 1e6 else ("µs", 1e3)
    return f"{_three(ns / divisor)} {unit}"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _three(value: float) -> str:
    """Three significant digits, without an exponent from a thousand on."""
    return f"{float(f'{value:.3g}'):,.0f}" if abs(value) >= 999.5 else f"{value:.3g}"
