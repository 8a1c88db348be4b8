"""What to do about what limits a profiled program: each recommendation with its figures and, where the trace
allows one, a bound on what it can gain."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from fusescope.analysis.profile import communication, launch_path
from fusescope.analysis.profile.device_time import DeviceTime
from fusescope.analysis.profile.figures import percent, three, time
from fusescope.analysis.profile.recommendation import WORTH, Recommendation, shortened
from fusescope.analysis.profile.single import single_gaps

SHORT_NS = 20_000  # an element-wise kernel of that length is mostly launch and memory latency
_ELEMENT_WISE = re.compile(r"elementwise|pointwise|triton_poi|CatArrayBatchedCopy|FillFunctor", re.IGNORECASE)
_RULES = 3  # of Nsight Compute
_NEVER = ("MemoryL2Compression",)  # of memory allocated as compressible, which torch's is not


def recommend(
    summary: Mapping[str, Any],
    kernels: Sequence[Mapping[str, Any]] = (),
    copies: Sequence[Mapping[str, Any]] = (),
    sequence: Iterable[tuple[Any, str, int]] = (),
    rules: Sequence[Mapping[str, Any]] = (),
    ncu: Sequence[Mapping[str, Any]] = (),
    steps: int = 1,
    parts: DeviceTime | None = None,
    measured_ns: float | None = None,
) -> list[Recommendation]:
    """What the profile suggests, communication that nothing hides first, then by the largest bound.

    summary: of the profile; kernels: rows of kernel_summary; copies: {"name", "calls", "total_ns", "bytes"}
    by name; sequence: (stream, name, ns) of kernels, by stream and start; rules: of ncu_rules; steps: in the
    profile (1 where it marks none); parts: of the devices' time, without which communication is not known;
    measured_ns: a step without the profiler, by a benchmark. Gains are of the device's time from the first to
    the last activity, single gaps left out: an upper bound, since what is removed may only have hidden
    something else. What waits for the host takes longer under the profiler: with measured_ns, its gain is
    against that.
    """
    devices = summary.get("devices") or ()
    span = sum(d["last_ns"] - d["first_ns"] for d in devices)
    single = single_gaps(summary)
    span = max(1, span - sum(gap["dur_ns"] for gap in single))
    found = [
        *launch_path.waits(summary, single, span, steps, measured_ns),
        *_copies(copies, span, parts),
        *_element_wise(sequence, kernels, span),
        *_batch(kernels, summary, measured_ns * steps if measured_ns else span),
    ]
    found.sort(key=lambda r: -(r.gain or 0))
    first = communication.advice(parts, span, steps) if parts else []
    whole = span + sum(gap["dur_ns"] for gap in single)
    cost = launch_path.profiler_cost(summary, single, span, steps, measured_ns)
    return [*first, *found, *cost, *launch_path.alone(single, whole), *_ncu(rules, ncu)]


def _copies(
    copies: Sequence[Mapping[str, Any]], span: int, parts: DeviceTime | None
) -> Iterable[Recommendation]:
    """Of copies from pinned memory those count that no kernel ran beside, where that is known."""
    host = [c for c in copies if re.search("HtoD|DtoH", c["name"])]
    pageable = [c for c in host if "Pageable" in c["name"]]
    for rows, pinned in ((pageable, False), ([c for c in host if c not in pageable], True)):
        ns, moved = (sum(c[k] or 0 for c in rows) for k in ("total_ns", "bytes"))
        alone = min(ns, parts.whole["memory_ns"]) if parts and pinned else ns
        if not ns or alone < WORTH * span:
            continue
        rate = f", {moved / 2**20:,.0f} MiB at {three(moved / ns)} GB/s" if moved else ""
        calls = sum(c["calls"] for c in rows)
        many, take = ("1 copy", "takes") if calls == 1 else (f"{calls:,} copies", "take")
        figures = f"{many} between host and device {take} {time(ns)}{rate}"
        figures += f", {time(alone)} of it beside no kernel" if alone < ns else ""
        yield Recommendation(
            "Overlap copies with kernels" if pinned else "Copy from pinned memory",
            f"{figures}. Copy the next batch on a stream of its own while this one is computed."
            if pinned
            else f"{figures}, from pageable memory, which the driver copies twice and the host waits for. "
            "DataLoader(pin_memory=True) or tensor.pin_memory(), then .to(device, non_blocking=True).",
            span / max(1, span - alone),
            "Tables",
        )


def _element_wise(sequence, kernels: Sequence[Mapping[str, Any]], span: int) -> Iterable[Recommendation]:
    chains, saved, longest = 0, 0, []
    for (_, chain), rows in groupby(sequence, lambda k: (k[0], bool(_ELEMENT_WISE.search(k[1])))):
        times = [ns for _, _, ns in rows]
        if chain and len(times) > 1 and sum(times) / len(times) < SHORT_NS:
            chains += 1
            saved += sum(times) - max(times)
            longest.append(len(times))
    busy = sum(k["total_ns"] for k in kernels)
    if not saved or saved < WORTH * busy:
        return
    first = next((k for k in kernels if _ELEMENT_WISE.search(k["name"])), None)
    named = f" The dearest: {first['calls']:,} calls of {time(first['mean_ns'])}." if first else ""
    yield Recommendation(
        "Fuse chains of element-wise kernels",
        f"{chains:,} chains of 2 to {max(longest)} short element-wise kernels on one stream; fused, each "
        f"could take as long as its longest kernel: {time(saved)} less, {percent(saved / busy)} of the "
        f"kernel time.{named} torch.compile fuses them.",
        span / max(1, span - saved),
        "Tables",
    )


def _batch(kernels: Sequence[Mapping[str, Any]], summary, span: int) -> Iterable[Recommendation]:
    busy = sum(d["busy_ns"] for d in summary.get("devices") or ())
    if busy and busy < 0.5 * span:
        yield Recommendation(
            "Use a larger batch",
            f"The device works {percent(busy / span)} of the time: until it is full, a larger batch takes "
            f"little longer. At most {three(span / busy)}× the throughput.",
            None,
            "Overview",
        )
        return
    known = [k for k in kernels if _known(k.get("grid_occupancy")) and _known(k.get("occupancy"))]
    total = sum(k["total_ns"] for k in known)
    small = [k for k in known if k["grid_occupancy"] < 0.5 * k["occupancy"]]
    ns = sum(k["total_ns"] for k in small)
    if total and ns >= 0.25 * total:
        fill = sum(k["grid_occupancy"] / k["occupancy"] * k["total_ns"] for k in small) / ns
        yield Recommendation(
            "Use a larger batch, or smaller tiles",
            f"Kernels of {percent(ns / total)} of the kernel time have grids that fill {percent(fill)} of "
            "what the SMs could hold at once: more work per launch would take little longer.",
            None,
            "Occupancy",
        )


def _ncu(rules: Sequence[Mapping[str, Any]], ncu: Sequence[Mapping[str, Any]]) -> list[Recommendation]:
    """Its rules with the largest estimates, weighted with the launch's share of the report's time, each once.
    Its estimates may be of one unit alone, so that they are no bound on the kernel."""
    times = [r["duration_ns"] if _known(r.get("duration_ns")) else 0.0 for r in ncu]
    total = sum(times)
    best: dict[str, tuple[float, Mapping[str, Any]]] = {}
    for rule in rules:
        launch = rule["launch"]
        if rule["rule"] in _NEVER or not _known(rule.get("speedup_percent")) or launch >= len(times):
            continue
        weight = rule["speedup_percent"] / 100 * (times[launch] / total if total else 0)
        if weight >= WORTH and weight > best.get(rule["rule"], (0.0, rule))[0]:
            best[rule["rule"]] = weight, rule
    chosen = sorted(best.values(), key=lambda found: -found[0])[:_RULES]
    return [
        Recommendation(
            f"Nsight Compute: {rule['rule']}",
            f"Launch {rule['launch']}, {percent(times[rule['launch']] / total)} of the report's time, "
            f"estimated speed-up {three(rule['speedup_percent'])} %: {shortened(rule['says'], 240)}",
            None,
            "Nsight Compute",
        )
        for _, rule in chosen
    ]


def _known(value: Any) -> bool:
    return isinstance(value, int | float) and value == value
