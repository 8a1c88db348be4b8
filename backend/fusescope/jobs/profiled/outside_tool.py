"""Running a case under a program that watches processes (ncu, nsys): found, started, cancelled, its output
kept."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from fusescope.core import paths
from fusescope.core.errors import Unsupported
from fusescope.core.machine import environment
from fusescope.core.schema import Parameter
from fusescope.jobs.profiled import one_case

COUNTS = (
    Parameter("calls", "int", 1, "profiled", 1, 1000),
    Parameter("warmup", "int", 2, "calls before", 0, 1000),
)


def find(tool: str) -> str | None:
    """The program on PATH, in the CUDA toolkit (CUDA_HOME, CUDA_PATH, /usr/local/cuda), or where NVIDIA's
    packages put it."""
    homes = [os.environ[k] for k in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(k)] + ["/usr/local/cuda"]
    nvidia = sorted((str(p) for p in Path("/opt/nvidia").glob(f"nsight-*/*/{tool}")), reverse=True)
    places = [*(f"{h}/bin" for h in homes), *(str(Path(p).parent) for p in nvidia)]
    return shutil.which(tool) or shutil.which(tool, path=os.pathsep.join(places))


def validate(spec: dict, tool: str, name: str, extra: tuple[Parameter, ...] = ()) -> dict:
    """A case with COUNTS and ``extra`` parameters for a tool; Unsupported on the CPU and where the tool is
    not installed."""
    whole = one_case.validate(spec, (*COUNTS, *extra))
    if whole["device"] == "cpu":
        raise Unsupported(
            f"{name} profiles CUDA kernels; the device is cpu: choose a cuda device, or the tool torch"
        )
    if find(tool) is None:
        package = "nsight-compute" if tool == "ncu" else "nsight-systems"
        raise Unsupported(
            f"{tool} ({name}) is not on PATH, in the CUDA toolkit or in /opt/nvidia: install {package}"
        )
    return whole


def tables(make: Callable[[], dict], reporter) -> dict | None:
    """The summary that ``make`` gives when it has written the tables; None, and a line in the log, where
    pyarrow is not installed: what the tool wrote is kept then, to be imported elsewhere."""
    try:
        return make()
    except ModuleNotFoundError as error:
        reporter.log(
            f"{error.name} is not installed, so the tables are not made: python -m pip install {error.name}"
        )
        return None


def watch(command: list[str], spec: dict, reporter, message: str) -> str:
    """Run ``command`` with the profiled call behind it, with telemetry; gives what was printed, which is
    kept, too.

    RuntimeError where the call or the tool failed; Cancelled lets nothing of them run on.
    """
    from fusescope.profiling.collect import telemetry

    request = reporter.artifact("request.json")
    request.write_text(json.dumps(spec))
    uuid = (environment.gpu_of(spec["device"]) or {}).get("uuid")
    with telemetry.watch(spec["device"], uuid, reporter.artifact("telemetry.parquet")):
        text, code = run(
            [*command, sys.executable, "-m", "fusescope.jobs.profiled.profiled_call", str(request)],
            reporter,
            message,
        )
    if code:
        from fusescope.profiling.nsight.ncu_table import complaint

        last = " | ".join([line.strip() for line in text.splitlines() if line.strip()][-3:])[-400:]
        raise RuntimeError(
            f"{Path(command[0]).name} ended with exit code {code}: {complaint(text) or last or 'no output'}"
        )
    return text


def run(command: list[str], reporter, message: str) -> tuple[str, int]:
    """(everything it printed, exit code) of a command in a session of its own, stopped with all its children
    on cancel."""
    log = reporter.artifact("tool-output.txt")
    reporter.log(" ".join(command))
    path = paths.python_path(Path.cwd())
    start = time.monotonic()
    with open(log, "ab") as out:
        began = out.tell()
        child = subprocess.Popen(
            command,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=os.environ | {"LC_ALL": "C", "PYTHONPATH": path},
            start_new_session=True,
        )
        try:
            while child.poll() is None:
                reporter.check()
                reporter.progress(0, 1, f"{message}, {time.monotonic() - start:.0f} s")
                time.sleep(0.1)
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
    return log.read_bytes()[began:].decode(errors="replace"), child.returncode
