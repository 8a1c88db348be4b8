"""Tries one class of faults for a time, or several in processes of their own, and tells what was found."""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import ModuleType

from fusescope.core import paths
from tests.faults import classes
from tests.faults.case import BARS, Fault
from tests.faults.processes import end_warm_parents

_GRACE_S = 240.0  # for preparing a class, and for the case in hand, beyond its time
_MOST_FOUND = 20  # a class that finds so many faults has told enough


@dataclass
class Result:
    """One line of the table. ``found``: "bar: seed: text" of each fault."""

    name: str
    title: str
    cases: int = 0
    seconds: float = 0.0
    skipped: str | None = None
    short: bool = False
    found: list[tuple[str, int, str]] = field(default_factory=list)

    def count(self, bar: str) -> int:
        return sum(b == bar for b, _, _ in self.found)

    @property
    def good(self) -> bool:
        """No fault, and something was tried."""
        return not self.found and bool(self.cases or self.skipped)


def names() -> list[str]:
    """All classes of faults, by the files that are there."""
    return sorted(m.name for m in pkgutil.iter_modules(classes.__path__))


def load(name: str) -> ModuleType:
    return importlib.import_module(f"{classes.__name__}.{name}")


def attempt(name: str, first: int, budget_s: float, at: Path, most: int | None = None) -> Result:
    """Try cases from the seed ``first`` on in this process until the time (seconds) is over, or ``most``
    seeds were tried."""
    module = load(name)
    result = Result(name, module.TITLE)
    if why := getattr(module, "missing", lambda: None)():
        result.skipped = why
        return result
    begin, seed = time.monotonic(), first
    with module.prepared(at) as try_one:
        ready = time.monotonic()
        while (most is None or seed < first + most) and len(result.found) < _MOST_FOUND:
            if seed > first and time.monotonic() - ready >= budget_s:
                break
            try:
                result.cases += try_one(seed)
            except Fault as fault:
                result.cases += 1
                result.found.append((fault.bar, seed, fault.text))
            except Exception as error:
                result.cases += 1
                result.found.append(("raw", seed, brief(error)))
            seed += 1
    result.seconds = time.monotonic() - begin
    return result


def run(chosen: Iterable[str], seed: int, budget_s: float, processes: int, most: int | None = None):
    """Each class in a process of its own, ``processes`` at a time, so that all take about ``budget_s``; gives
    Results as they come. One that hangs or dies is a fault of its class."""
    modules = {name: load(name) for name in chosen}
    tried = [n for n, m in modules.items() if not getattr(m, "missing", lambda: None)()]
    # The longest first; and no class longer than the whole.
    shares = sum(modules[n].SHARE for n in tried) or 1.0
    time_of = {n: min(budget_s, processes * budget_s * modules[n].SHARE / shares) for n in tried}
    order = sorted(modules, key=lambda n: -time_of.get(n, 0.0))
    with ThreadPoolExecutor(processes) as pool:
        jobs = [pool.submit(_apart, name, seed, time_of.get(name, 0.0), most) for name in order]
        for job in jobs:
            yield job.result()


def _apart(name: str, seed: int, budget_s: float, most: int | None) -> Result:
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=f"faults-{name}-", ignore_cleanup_errors=True) as at:
        command = [sys.executable, "-m", "tests.faults", "--one", name, "--seed", str(seed), "--at", at]
        command += ["--budget", str(budget_s), *(["--most", str(most)] if most else [])]
        env = os.environ | {"PYTHONPATH": f"{paths.ROOT}{os.pathsep}{paths.python_path()}"}
        with open(Path(at) / "said", "w+") as said, open(Path(at) / "errors", "w+") as errors:
            process = subprocess.Popen(
                command,
                stdout=said,
                stderr=errors,
                text=True,
                cwd=paths.ROOT,
                env=env,
                start_new_session=True,
            )
            try:
                process.wait(budget_s + _GRACE_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                end_warm_parents(Path(at) / "runtime")
            said.seek(0), errors.seek(0)
            try:
                return Result(**json.loads(said.read().splitlines()[-1]))
            except (ValueError, IndexError, TypeError):
                why = f"the class ended without a result ({process.returncode}): {errors.read()[-1500:]}"
                gone = Result(name, load(name).TITLE, seconds=time.monotonic() - begin)
                gone.found.append(("raw", seed, why))
                return gone


def brief(error: BaseException) -> str:
    """An exception and where it came from, in one line."""
    frames = traceback.extract_tb(error.__traceback__)[-4:]
    way = " > ".join(f"{Path(f.filename).name}:{f.lineno}" for f in frames)
    return f"{type(error).__name__}: {error} ({way})"[:600]


def to_json(result: Result) -> str:
    return json.dumps(asdict(result))


def enough(result: Result) -> Result:
    """Mark a class that got through fewer cases than its file asks of the whole command."""
    result.short = not result.skipped and result.cases < load(result.name).LEAST
    return result


def table(results: list[Result]) -> str:
    """Markdown: class, cases, lost, wrong status, other faults, seconds."""
    lines = [
        "| class | cases | lost | wrong status | other faults | seconds |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for r in sorted(results, key=lambda r: r.name):
        if r.skipped:
            lines.append(f"| {r.title} | skipped: {r.skipped} | | | | |")
            continue
        other = sum(r.count(bar) for bar in BARS if bar not in ("lost", "state"))
        cases = f"{r.cases:,}{f' (of {load(r.name).LEAST:,})' if r.short else ''}"
        lines.append(
            f"| {r.title} | {cases} | {r.count('lost')} | {r.count('state')} | {other} | {r.seconds:.0f} |"
        )
    return "\n".join(lines)
