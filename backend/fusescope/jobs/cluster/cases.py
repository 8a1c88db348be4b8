"""A comparison on a cluster: a unit is a case with all its implementations, on one worker and device."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fusescope.core.records import Record, case_key
from fusescope.core.reporter import Reporter
from fusescope.core.schema.lines import Lines
from fusescope.jobs.cluster import answers
from fusescope.jobs.cluster.crew import Crew
from fusescope.jobs.cluster.worker import Unit, Worker


def units(spec: Mapping[str, Any], statuses: Mapping[tuple[str, str], str]) -> list[Unit]:
    """A unit for each case that lacks a record, with what is known of it; the largest first, so that no
    worker is left with a long one when the others have none."""
    found, there = [], {}
    for (key, impl), status in statuses.items():
        there.setdefault(key, []).append([key, impl, status])
    for number, case in enumerate(spec["cases"], 1):
        key = case_key(spec["op"], case, spec["dtype"], spec["device"])
        known = there.get(key, [])
        if {impl for _, impl, _ in known} >= set(spec["impls"]):
            continue
        own = {**spec, "cases": [case], "cluster": None}
        found.append(Unit(key, own, known, f"case {number} of {len(spec['cases'])}"))
    return sorted(found, key=lambda unit: -_size(unit.spec["cases"][0]))


def _size(case: Mapping[str, Any]) -> int:
    """The product of a case's sizes, which grows with what it costs, whatever the operator."""
    return math.prod(v for v in case.values() if isinstance(v, int) and v > 0)


def run(spec: Mapping[str, Any], crew: Crew, reporter: Reporter) -> None:
    """Every case that lacks records, measured by the crew."""
    total, due = len(spec["cases"]), units(spec, reporter.statuses())
    crew.share(due, Bookkeeper(reporter).book, lambda unit, why: crashed(unit, why, reporter), total)
    reporter.progress(total, total, "done", 0.0)


class Bookkeeper:
    """Writes what workers found, each record once, with the device that measured it."""

    def __init__(self, reporter: Reporter):
        self.reporter, self.first, self.there = reporter, True, set(reporter.skip())
        self.kinds: set[str] = set()

    def book(self, batch: Sequence[tuple[Unit, Mapping[str, Any]]], worker: Worker) -> list[Record]:
        """Samples and records of a batch's units, written together; the records. RuntimeError where one is
        refused: none of the batch is written then."""
        written: list[tuple[Record, Lines]] = []
        where = worker.where
        for _, found in batch:
            self._environment(found["environment"], where["device_name"])
            for line in found["log"]:
                self.reporter.log(f"{worker.name}: {line}")
            for answer in found["records"]:
                record, lines = _checked(answer, worker.name, where)
                mine = lines.case_key, lines.impl
                if mine not in self.there:
                    self.there.add(mine)
                    written.append((record, lines))
        if written:
            self.reporter.book([lines for _, lines in written])
        return [record for record, _ in written]

    def _environment(self, facts: Mapping[str, Any], name: str | None) -> None:
        """The run's device is the first worker's; another kind of device is said."""
        if self.first and facts:
            self.reporter.environment(**facts)
            self.first = False
        if name and name not in self.kinds:
            self.kinds.add(name)
            if len(self.kinds) > 1:
                kinds = ", ".join(sorted(self.kinds))
                self.reporter.log(
                    f"the workers have unlike devices ({kinds}): compare cases of one device only"
                )


def _checked(answer: Any, name: str, where: Mapping[str, Any]) -> tuple[Record, Lines]:
    try:
        return answers.check(answer, where)
    except ValueError as error:
        raise RuntimeError(f"{name} sent a line that is not written: {error!s:.300}") from None


def crashed(unit: Unit, why: str, reporter: Reporter) -> None:
    """A record for every implementation of a case that has none, saying why."""
    spec = unit.spec
    for impl in spec["impls"]:
        if (unit.key, impl) not in reporter.skip():
            case = dict(spec["cases"][0])
            reporter.record(Record(spec["op"], impl, case, spec["dtype"], spec["device"], "crashed", why))
