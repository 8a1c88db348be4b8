"""Nsight Systems around a case: kernels, copies and API calls on one timeline, without torch.profiler's own
cost."""

from __future__ import annotations

from fusescope.jobs.profiled import one_case, outside_tool

TITLE = "Nsight Systems"
DEADLINE_S = 3600.0


def validate(spec: dict) -> dict:
    """{op, impl, case, dtype, device, calls, warmup}. Unsupported without a GPU or nsys; ValueError."""
    return outside_tool.validate(spec, "nsys", "Nsight Systems")


def name(spec: dict) -> str:
    return one_case.name(spec, "nsys")


def device(spec: dict) -> str | None:
    return spec["device"]


def run(spec: dict, reporter) -> None:
    """The report (.nsys-rep), its SQLite export and the tables of an import. RuntimeError where the tool
    failed."""
    from fusescope.profiling.nsight import nsys

    tool, report = outside_tool.find("nsys"), reporter.artifact("report.nsys-rep")
    command = [
        tool,
        "profile",
        "--force-overwrite=true",
        f"--output={report}",
        "--trace=cuda,nvtx",
        "--sample=none",
        "--cpuctxsw=none",
    ]
    command += ["--capture-range=cudaProfilerApi", "--capture-range-end=stop", "--cuda-graph-trace=node"]
    outside_tool.watch(command, spec, reporter, f"nsys around {spec['op']} {spec['impl']}")
    if not report.is_file():
        raise RuntimeError("nsys wrote no report: the profiled range was never entered")
    target = reporter.artifact("nsys.sqlite")
    export = [tool, "export", "--type=sqlite", "--force-overwrite=true", f"--output={target}", str(report)]
    text, code = outside_tool.run(export, reporter, "exporting to SQLite")
    if code or not target.is_file():
        raise RuntimeError(f"nsys export failed (exit code {code}): {' '.join(text.split())[-300:]}")
    summary = outside_tool.tables(
        lambda: nsys.load(target, reporter.artifact, lambda share, text: reporter.check()), reporter
    )
    rows = summary["rows"] if summary else None
    reporter.progress(
        1,
        1,
        f"{rows['kernels']} kernels, {rows['launches']} API calls"
        if rows
        else "the export, without its tables",
    )
