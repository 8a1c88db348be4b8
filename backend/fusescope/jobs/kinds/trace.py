"""A torch.profiler trace of one implementation on one case: what ran, in which order, with which gaps."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from fusescope.core.schema import Parameter
from fusescope.jobs.profiled import eager_trace, one_case

TITLE = "Trace"
DEADLINE_S = 1800.0
STEPS = (
    Parameter("wait", "int", 1, "steps before", 0, 1000),
    Parameter("warmup", "int", 2, "steps discarded", 1, 1000),
    Parameter("active", "int", 5, "steps profiled", 1, 1000),
)
MEMORY = Parameter("memory", "bool", False, "allocations in the trace, allocator peak and snapshot")


def validate(spec: dict) -> dict:
    """{op, impl, case, dtype, device}, STEPS, memory and captured, complete. ValueError in one sentence."""
    return one_case.validate(spec, (*STEPS, MEMORY, eager_trace.CAPTURED))


def name(spec: dict) -> str:
    return one_case.name(spec, "trace")


def device(spec: dict) -> str | None:
    return spec["device"]


def run(spec: dict, reporter) -> None:
    from fusescope.core.machine import environment
    from fusescope.profiling.collect import memory, telemetry, torch_trace
    from fusescope.profiling.derive import kernel_table

    steps = {p.name: spec[p.name] for p in STEPS}
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
    makes the tables where pyarrow is); None, and a line in the log, where that fails."""
    if call is None:
        return None
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
            f"{error.name} is not installed, so the trace has no tables: python -m pip install {error.name}"
        )
