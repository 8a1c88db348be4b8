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
import threading
import time
import traceback
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import ModuleType

from fusescope.core import paths
from tests.faults import classes
from tests.faults.case import BARS, Fault
from tests.faults.processes import end_warm_parents

_GRACE_S = 400.0  # for preparing a class, and for the case in hand, beyond its time
_APART = 100_000  # seeds between the parts of a class
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


def attempt(
    name: str, first: int, budget_s: float, at: Path, most: int | None = None, cases: int | None = None
) -> Result:
    """Try cases from the seed ``first`` on in this process until the time (seconds) is over, ``most`` seeds
    were tried, or there were so many ``cases``."""
    module = load(name)
    result = Result(name, module.TITLE)
    if why := getattr(module, "missing", lambda: None)():
        result.skipped = why
        return result
    begin, seed = time.monotonic(), first
    with module.prepared(at) as try_one:
        ready = time.monotonic()
        while (most is None or seed < first + most) and len(result.found) < _MOST_FOUND:
            over = time.monotonic() - ready >= budget_s or (cases and result.cases >= cases)
            if seed > first and over and (result.cases or seed > first + 20):
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


def run(
    chosen: Iterable[str],
    seed: int,
    budget_s: float,
    processes: int,
    most: int | None = None,
    least: bool = False,
    divided: bool = True,
) -> Iterator[Result]:
    """Each class in processes of its own, ``processes`` at a time, so that all take about ``budget_s``; gives
    Results as they come. One that hangs or dies is a fault of its class.

    least: a class ends as soon as it has its LEAST cases, and later ones get the time that is left. divided:
    whether a class of several PARTS has a process for each.
    """
    time_of = _Time(chosen, budget_s, processes, divided)
    with ThreadPoolExecutor(processes) as pool:
        jobs = [
            [pool.submit(_apart, name, n, seed, time_of, most, least) for n in range(time_of.parts[name])]
            for name in time_of.order
        ]
        for parts in jobs:
            yield _together([part.result() for part in parts])


class _Time:
    """The seconds that each process gets when it begins: its class's share of what is left then. The shortest
    go first, but for a class that is to begin with the whole."""

    def __init__(self, chosen: Iterable[str], budget_s: float, processes: int, divided: bool = True):
        self.end, self.processes = time.monotonic() + budget_s, processes
        self.lock, self.left, self.parts = threading.Lock(), {}, {}
        for name in chosen:
            self.parts[name] = getattr(load(name), "PARTS", 1) if divided else 1
            tried = not getattr(load(name), "missing", lambda: None)()
            self.left[name] = load(name).SHARE / self.parts[name] if tried else 0.0
        later = {name: not getattr(load(name), "FIRST", False) for name in self.left}
        self.order = sorted(self.left, key=lambda n: (later[n], self.parts[n], self.left[n]))
        self.waiting = {name: self.parts[name] for name in self.order}
        self.running: dict[int, float] = {}  # process → when it ends

    def begin(self, name: str) -> float:
        with self.lock:
            now = time.monotonic()
            share, whole = self.left[name], sum(self.left[n] * k for n, k in self.waiting.items()) or 1.0
            taken = sum(max(0.0, end - now) for end in self.running.values())
            free = max(0.0, self.processes * (self.end - now) - taken)
            given = max(0.0, min(self.end - now, free * share / whole))
            self.waiting[name] -= 1
            self.running[threading.get_ident()] = now + given
            return given

    def done(self) -> None:
        with self.lock:
            self.running.pop(threading.get_ident(), None)


def _together(parts: list[Result]) -> Result:
    """The parts of one class, which had seeds of their own, as one result."""
    first, *others = parts
    for part in others:
        first.cases, first.seconds = first.cases + part.cases, first.seconds + part.seconds
        first.found += part.found
    return first


def _apart(name: str, part: int, seed: int, time_of: _Time, most: int | None, least: bool) -> Result:
    budget_s = time_of.begin(name)
    try:
        cases = -(-load(name).LEAST // time_of.parts[name]) if least else None
        return _process(name, seed + part * _APART, budget_s, most, cases)
    finally:
        time_of.done()


def _process(name: str, seed: int, budget_s: float, most: int | None, cases: int | None) -> Result:
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=f"faults-{name}-", ignore_cleanup_errors=True) as at:
        command = [sys.executable, "-m", "tests.faults", "--one", name, "--seed", str(seed), "--at", at]
        command += ["--budget", str(budget_s), *(["--most", str(most)] if most else [])]
        command += ["--cases", str(cases)] if cases else []
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
