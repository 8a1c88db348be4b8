"""compute-sanitizer around one call of one implementation: reads and writes out of bounds, races,
uninitialised memory."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from fusescope.core import paths
from fusescope.core.errors import Unsupported
from fusescope.core.records import Record
from fusescope.core.schema import Parameter
from fusescope.jobs.profiled import one_case

TITLE = "Sanitizer"
DEADLINE_S = 3600.0
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
_SUMMARY = re.compile(r"^=+ (?:ERROR|RACECHECK) SUMMARY: (\d+) (?:errors?|hazards?)", re.MULTILINE)
_PREFIX = re.compile(r"^=+ ?")


def find_sanitizer() -> str | None:
    """The compute-sanitizer on PATH, or that of the CUDA toolkit in CUDA_HOME or /usr/local/cuda."""
    homes = [os.environ[k] for k in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(k)] + ["/usr/local/cuda"]
    return shutil.which("compute-sanitizer") or shutil.which(
        "compute-sanitizer", path=os.pathsep.join(f"{h}/bin" for h in homes)
    )


def validate(spec: dict) -> dict:
    """{op, impl, case, dtype, device, tool}. Unsupported without a GPU or without compute-sanitizer;
    ValueError."""
    whole = one_case.validate(spec, (Parameter("tool", "choice", "memcheck", choices=TOOLS),))
    if whole["device"] == "cpu":
        raise Unsupported("compute-sanitizer checks CUDA kernels; the device is cpu: choose a cuda device")
    if find_sanitizer() is None:
        raise Unsupported(
            "compute-sanitizer is neither on PATH nor in the CUDA toolkit: install the toolkit's "
            "cuda-sanitizer package"
        )
    return whole


def name(spec: dict) -> str:
    return one_case.name(spec, "sanitize")


def device(spec: dict) -> str | None:
    return spec["device"]


def run(spec: dict, reporter) -> None:
    """Findings become a record with status error and artifacts/sanitizer.json; RuntimeError where the tool
    itself failed."""
    log = reporter.artifact("sanitizer.txt")
    request = reporter.artifact("sanitizer-request.json")
    request.write_text(json.dumps(spec))
    tool = [
        find_sanitizer(),
        "--tool",
        spec["tool"],
        "--print-limit",
        "100",
        "--target-processes",
        "all",
        "--log-file",
        str(log),
    ]
    # every tensor an allocation of its own: inside torch's pool an access past a tensor's end would look
    # legal
    env = os.environ | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "PYTHONPATH": _python_path()}
    reporter.progress(0, 1, f"{spec['tool']} around one call of {spec['op']} {spec['impl']}")
    call = subprocess.Popen(
        [*tool, sys.executable, "-m", "fusescope.jobs.profiled.one_case", str(request)], env=env
    )
    while call.poll() is None:
        reporter.check()
        time.sleep(0.1)
    found = parse(log.read_text(errors="replace") if log.exists() else "")
    reporter.artifact("sanitizer.json").write_text(
        json.dumps(found | {"tool": spec["tool"], "exit": call.returncode}, indent=1)
    )
    if found["errors"] is None or (call.returncode and not found["errors"]):
        raise RuntimeError(
            f"{spec['tool']} did not finish (exit code {call.returncode}): "
            f"{found['message'] or 'see the log'}"
        )
    if not found["errors"]:
        reporter.progress(1, 1, f"{spec['tool']}: no error")
        return
    first = (
        found["findings"][0] if found["findings"] else {"what": "see artifacts/sanitizer.txt", "where": None}
    )
    reason = f"{spec['tool']}: {found['errors']} errors; first: {first['what']}" + (
        f" {first['where']}" if first["where"] else ""
    )
    reporter.record(
        Record(
            spec["op"],
            spec["impl"],
            spec["case"],
            spec["dtype"],
            spec["device"],
            "error",
            reason,
            backend=spec["tool"],
        )
    )
    reporter.progress(1, 1, reason)


def parse(text: str) -> dict:
    """compute-sanitizer's report: {"errors": number or None (no summary), "findings": [{what, where, times}],
    "message"}.

    A finding is a block of lines after "========= " that is followed by indented ones; equal ones are counted
    together.
    """
    summaries = [int(n) for n in _SUMMARY.findall(text)]
    findings: dict[tuple, int] = {}
    lines = [_PREFIX.sub("", line, count=1) for line in text.splitlines() if line.startswith("=====")]
    for head, after in zip(lines, [*lines[1:], ""]):
        if (
            head[:1] not in ("", " ")
            and after.startswith("    ")
            and not head.startswith(("COMPUTE-SANITIZER", "ERROR SUMMARY"))
        ):
            where = after.strip() if after.strip().startswith("at ") else None
            findings[head.strip(), where] = findings.get((head.strip(), where), 0) + 1
    messages = [
        line
        for line in lines
        if line.startswith(("Error:", "Internal Sanitizer Error", "Target application"))
    ]
    return {
        "errors": sum(summaries) if summaries else None,
        "findings": [{"what": what, "where": where, "times": n} for (what, where), n in findings.items()],
        "message": messages[0] if messages else None,
    }


def _python_path() -> str:
    return paths.python_path(Path.cwd())
