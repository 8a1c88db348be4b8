"""Nsight Compute around a case: speed of light, measured occupancy, stall reasons, with a chosen set of
metrics."""

from __future__ import annotations

import re
from pathlib import Path

from fusescope.core.schema import Parameter
from fusescope.jobs.profiled import one_case, outside_tool

TITLE = "Nsight Compute"
DEADLINE_S = 3600.0
METRICS = (
    "gpu__time_duration.sum",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "launch__registers_per_thread",
    "launch__shared_mem_per_block_static",
    "launch__shared_mem_per_block_dynamic",
    "launch__waves_per_multiprocessor",
    "launch__occupancy_limit_blocks",
    "launch__occupancy_limit_registers",
    "launch__occupancy_limit_shared_mem",
    "launch__occupancy_limit_warps",
)
SETS = {
    "light": ["--metrics", ",".join(METRICS)],
    "standard": ["--set", "basic", "--section", "WarpStateStats", "--metrics", ",".join(METRICS)],
    "detailed": ["--set", "detailed", "--metrics", ",".join(METRICS)],
    "full": ["--set", "full"],
}
"""Chosen by name in ``metrics``; a list of metric names separated by commas is used unchanged."""


def _metrics(text: str) -> str:
    if text not in SETS and not re.fullmatch(r"\w+__[\w.]+(,\w+__[\w.]+)*", text):
        raise ValueError(
            f"metrics must be {', '.join(SETS)} or names such as gpu__time_duration.sum, not {text!r}"
        )
    return text


def validate(spec: dict) -> dict:
    """{op, impl, case, dtype, device, calls, warmup, metrics}. Unsupported without a GPU or ncu;
    ValueError."""
    metrics = Parameter("metrics", "text", "standard", further=_metrics)
    return outside_tool.validate(spec, "ncu", "Nsight Compute", (metrics,))


def name(spec: dict) -> str:
    return one_case.name(spec, "ncu")


def device(spec: dict) -> str | None:
    return spec["device"]


def run(spec: dict, reporter) -> None:
    """The report (.ncu-rep), its raw and details pages as CSV and their tables. RuntimeError: counters
    forbidden, tool failed."""
    from fusescope.profiling.nsight import ncu

    tool, report = outside_tool.find("ncu"), reporter.artifact("report.ncu-rep")
    command = [
        tool,
        "--force-overwrite",
        "--export",
        str(report.with_suffix("")),
        "--target-processes",
        "all",
    ]
    command += [
        "--profile-from-start",
        "off",
        "--clock-control",
        "none",
        *SETS.get(spec["metrics"], ["--metrics", spec["metrics"]]),
    ]
    said = outside_tool.watch(command, spec, reporter, f"ncu around {spec['op']} {spec['impl']}")
    if not report.is_file():
        raise RuntimeError(f"ncu wrote no report: {ncu.complaint(said) or 'no kernel was launched'}")
    reporter.progress(0, 1, "reading the report")
    pages = {page: _page(tool, report, page, reporter) for page in ("raw", "details")}

    def load() -> dict:
        return ncu.load(
            pages["raw"], reporter.artifact, lambda share, text: reporter.check(), details=pages["details"]
        )

    summary = outside_tool.tables(load, reporter)
    reporter.progress(
        1,
        1,
        f"{summary['rows']['ncu_kernels']} launches profiled"
        if summary
        else "the report, without its tables",
    )


def _page(tool: str, report: Path, page: str, reporter) -> Path:
    """One page of the report as CSV."""
    command = [tool, "--import", str(report), "--page", page, "--csv", "--print-units", "base"]
    text, code = outside_tool.run(command, reporter, f"writing the {page} page")
    if code:
        raise RuntimeError(
            f"ncu could not read its own report (exit code {code}): {' '.join(text.split())[-300:]}"
        )
    path = reporter.artifact("ncu.csv" if page == "raw" else f"ncu-{page}.csv")
    path.write_text(text)
    return path
