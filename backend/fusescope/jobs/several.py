"""A comparison in several fresh processes, case after case: what differs from one process to the next
(addresses, the order of allocations, how the threads were placed) is then part of the interval.

Each process is a new interpreter (jobs/process/member.py), which this one asks for one case at a time and
never while another works.
A case gets its records as soon as all processes have measured it, so that a run that ends early has lost none
that is finished. A process that crashes, hangs or poisons its CUDA context costs one implementation on one
case; another takes its place.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Any

from fusescope.analysis import estimate
from fusescope.core.machine import environment, stage_times
from fusescope.core.records import BenchSpec, Record, case_key
from fusescope.core.reporter import Reporter
from fusescope.jobs.process.members import Key, Member
from fusescope.masks import counting

_DOUBT_S = 2.0  # weight of the estimate against what was measured


def run(
    kind: str, spec: Mapping[str, Any], reporter: Reporter, facts: Callable[[BenchSpec], estimate.Facts]
) -> None:
    """Measure ``spec`` in ``spec["processes"]`` processes and record what they find together, samples by
    process: a line of samples each. ``facts``: what the estimate of the time left goes by.

    Where it ends early, the case that was being measured keeps what whole processes found of it: a record of
    fewer processes, whose interval says so. Raises Cancelled when a stop was requested, and RuntimeError with
    a process's reason where it could not measure at all.
    """
    reporter.environment(processes=spec["processes"])
    team = _Team(kind, spec, reporter, _expected(spec, facts))
    try:
        for number in range(len(spec["cases"])):
            _Case(spec, number, reporter).measure(team)
    finally:
        team.end()


def _expected(spec: Mapping[str, Any], facts: Callable[[BenchSpec], estimate.Facts]) -> list[list[float]]:
    """Seconds of each case in each process; the same for all where counting the work takes minutes, or where
    something cannot be described, which the process that measures it says."""
    asked = BenchSpec.from_json(dict(spec))
    if all(map(counting.countable, asked.cases)):
        with contextlib.suppress(OSError, ValueError):
            return estimate.spread(asked, facts(asked), stage_times.read())
    return [[1.0] * asked.processes for _ in asked.cases]


class _Case:
    """One case over all processes, from the first to its records."""

    def __init__(self, spec: Mapping[str, Any], number: int, reporter: Reporter):
        case, baseline = spec["cases"][number], spec["baseline"]
        self.reporter, self.number, self.count, self.baseline = reporter, number, spec["processes"], baseline
        key = case_key(spec["op"], case, spec["dtype"], spec["device"])
        known = {k: status for k, status in reporter.statuses().items() if k[0] == key}
        self.due = [i for i in spec["impls"] if (key, i) not in known]
        self.failed = {k: status for k, status in known.items() if status != "ok"}
        impls = [i for i in spec["impls"] if i in self.due or i == baseline]
        wait_s = spec.get("wait_idle_s", 0.0) / (self.count * len(spec["cases"]))  # of all together
        self.spec = {**spec, "cases": [case], "impls": impls, "processes": 1, "wait_idle_s": wait_s}
        self.found: list[dict[Key, Record]] = []
        self.samples: list[dict] = []

    def measure(self, team: _Team) -> None:
        """In each process of the team; what failed in one is not tried in the next."""
        try:
            for member in team.members if self.due else ():
                records, samples = team.ask(member, self.number, self.spec, self.failed)
                self.found.append(records)
                self.samples += samples
                self.failed |= {k: r.status for k, r in records.items() if r.status != "ok"}
        finally:
            self._record()

    def _record(self) -> None:
        from fusescope.measure.compare import Stop
        from fusescope.measure.joined import join

        if 0 < len(self.found) < self.count:
            few = f"{len(self.found)} of {self.count} processes"
            self.reporter.log(f"case {self.number + 1} has records of {few}: the run ended before the others")
        stop = Stop(self.spec["precision"], self.spec["min_samples"])
        for record in join(self.found, self.baseline, stop):
            if record.impl in self.due:
                for line in self.samples:
                    if line["impl"] == record.impl:
                        self.reporter.samples(**line)
                self.reporter.record(record)


class _Team:
    """The processes, and how far they are."""

    def __init__(self, kind: str, spec: Mapping[str, Any], reporter: Reporter, expected: list[list[float]]):
        self.reporter, self.cases, self.count = reporter, len(spec["cases"]), spec["processes"]
        self.members = [Member(kind, n, self.count, reporter, self._progress) for n in range(self.count)]
        gpu = environment.gpu_of(spec["device"]) if spec["device"].startswith("cuda") else None
        self.alone = bool(gpu and gpu.get("exclusive"))  # the device takes one process at a time
        self.expected = expected  # seconds of each case in each process
        self.took_s = self.took_expected_s = 0.0  # of what is done
        self.at = 0, 0.0  # the case and when its member began

    def ask(
        self, member: Member, case: int, spec: Mapping[str, Any], known: Mapping[Key, str]
    ) -> tuple[dict[Key, Record], list[dict]]:
        """What ``member`` finds of a case: records and lines of samples. It ends after the last case."""
        self.at = case, time.monotonic()
        siblings = [m.pid for m in self.members if m.pid and m is not member]
        found = member.measure({**spec, "seed": spec["seed"] + member.number}, known, siblings)
        self.took_s += time.monotonic() - self.at[1]
        self.took_expected_s += self.expected[case][member.number]
        if self.alone or case + 1 == self.cases:
            member.end()
        return found

    def end(self) -> None:
        for member in self.members:
            member.end()

    def _progress(self, number: int, done: int, total: int, message: str, eta: float | None) -> None:
        case, begun = self.at
        if eta is not None:
            took = self.took_s + time.monotonic() - begun + eta
            expected = self.took_expected_s + self.expected[case][number]
            left = sum(self.expected[case][number + 1 :]) + sum(map(sum, self.expected[case + 1 :]))
            eta += left * (took + _DOUBT_S) / (expected + _DOUBT_S)
        where = f"case {case + 1} of {self.cases}, " if self.cases > 1 else ""
        text = message.removeprefix("case 1 of 1: ")
        text = f"{where}process {number + 1} of {self.count}: {text}"
        units = case * self.count + number
        self.reporter.progress(units * total + done, self.cases * self.count * total, text, eta)
