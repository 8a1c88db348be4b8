"""A torch.profiler trace of one implementation on one case: what ran, in which order, with which gaps."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

TITLE = "Trace"
DEADLINE_S = 1800.0
_STEPS = {"wait": 1, "warmup": 2, "active": 5}


def validate(spec: dict) -> dict:
    """{op, impl, case, dtype, device, wait, warmup, active, memory, captured}. ValueError or TypeError.

    wait, warmup, active: steps before, discarded, profiled. memory: allocations in the trace, allocator peak
    and snapshot. captured: a run with the trace of the eager form of what replays a CUDA graph here, from
    which its kernels get their operators.
    """
    from fusescope.jobs.profiled import eager_trace, one_case

    whole = one_case.validate(spec, _STEPS | {"memory": False, "captured": None})
    if whole["captured"] is not None:
        whole["captured"] = eager_trace.find(whole["captured"]).name
    if not isinstance(whole["memory"], bool):
        raise TypeError(f"memory is true or false, not {whole['memory']!r}")
    for name, low in (("wait", 0), ("warmup", 1), ("active", 1)):
        if (
            isinstance(whole[name], bool)
            or not isinstance(whole[name], int)
            or not low <= whole[name] <= 1000
        ):
            raise ValueError(f"{name} is a whole number of steps between {low} and 1000, not {whole[name]!r}")
    return whole


def device(spec: dict) -> str | None:
    return spec["device"]


def run(spec: dict, reporter) -> None:
    from fusescope.core import environment
    from fusescope.jobs.profiled import eager_trace, one_case
    from fusescope.profiling.collect import memory, telemetry, torch_trace
    from fusescope.profiling.derive import kernel_table

    steps = {name: spec[name] for name in _STEPS}
    total = sum(steps.values()) + 2
    reporter.progress(
        0, total, f"preparing {spec['op']} {spec['impl']}; kernels whose source changed are built first"
    )
    call = one_case.prepare(spec)
    modules = getattr(call, "modules", contextlib.nullcontext)
    call()  # the first call compiles, tunes and loads; it is no part of the picture
    one_case.synchronize(spec["device"])
    done = 0

    def step() -> None:
        nonlocal done
        done += 1
        reporter.check()
        reporter.progress(done, total, f"step {done} of {total - 2}")

    eager = eager_trace.kernels(spec["captured"]) or _eager(
        getattr(call, "eager", None), spec["device"], reporter
    )
    path = reporter.artifact("trace.json.gz")
    uuid = (environment.gpu_of(spec["device"]) or {}).get("uuid")
    watch = telemetry.watch(spec["device"], uuid, reporter.artifact("telemetry.parquet"))
    watch.readers.append(memory.allocator(spec["device"]))
    kept = memory.recorded(spec["device"], reporter.artifact) if spec["memory"] else contextlib.nullcontext()
    with watch, kept, modules():
        flop = torch_trace.collect(
            call, path, spec["device"], **steps, before_step=step, memory=spec["memory"]
        )
    reporter.progress(total - 1, total, "reading the trace")
    found = kernel_table.table(kernel_table.read_events(path), flop)
    found |= {
        "complaint": kernel_table.complaint(found, spec["device"] != "cpu"),
        "backend": getattr(call, "backend", None),
    }
    reporter.artifact("kernels.json").write_text(json.dumps(found, indent=1))
    _tables(path, reporter, eager)
    if found["complaint"]:
        reporter.log(found["complaint"])
    reporter.progress(
        total,
        total,
        found["complaint"] or f"{len(found['kernels'])} kernels, {len(found['operators'])} operators",
    )


def _eager(call, device: str, reporter) -> list[dict] | None:
    """Kernels of the eager form of what the call replays, traced apart (eager-trace.json.gz, for whoever
    makes the tables where pyarrow is); None, and a line in the log, where that cannot be had."""
    if call is None:
        return None
    from fusescope.jobs.profiled import eager_trace
    from fusescope.profiling.collect import torch_trace

    reporter.progress(0, 0, "tracing what the CUDA graph was captured from")
    path = reporter.artifact("eager-trace.json.gz")
    try:
        torch_trace.collect(call, path, device, wait=0, warmup=1, active=1, before_step=reporter.check)
        if device != "cpu":
            import torch

            torch.cuda.empty_cache()  # what it took is no part of the run's memory
        return eager_trace.read(path)
    except (RuntimeError, ValueError, ModuleNotFoundError) as error:
        if "CUDA error" in str(error):
            raise
        reporter.log(f"the eager form could not be read ({error}), so replayed kernels name no operator")
        return None


def _tables(trace: Path, reporter, eager: list[dict] | None) -> None:
    """The same tables as an import of the trace leaves; without pyarrow the trace alone, to be imported
    elsewhere."""
    try:
        from fusescope.profiling.chrome import importer

        importer.load(trace, reporter.artifact, lambda share, text: reporter.check(), captured=eager)
    except ModuleNotFoundError as error:
        reporter.log(
            f"{error.name} is not installed, so the trace's tables are not made: python -m pip install {error.name}"
        )
