"""Traverses and searches on a cluster: a unit is a few codes, measured in turn with an unfused layer of the
same worker, so that a ratio never crosses devices."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fusescope.core.records import Record, Speedup, case_key
from fusescope.core.reporter import Reporter
from fusescope.jobs.cluster.cases import Bookkeeper
from fusescope.jobs.cluster.crew import Crew
from fusescope.jobs.cluster.worker import Unit, Worker
from fusescope.search import encoding
from fusescope.search.learning.strategy import BATCH
from fusescope.search.scheme.setting import OP, of_spec

GROUP = 8  # codes of a unit of a traverse, sampled together
_INHERENT = {"cluster", "deadline_s"}  # of the job, not of a piece of its work

Say = Callable[[str], None]


class Shared:
    """What search/measuring/evaluate.py's Evaluator is to a traverse or a search, over the workers of a
    crew."""

    def __init__(self, spec: Mapping[str, Any], crew: Crew, reporter: Reporter):
        self.setting, self.crew, self.reporter = of_spec(spec), crew, reporter
        self.key = case_key(OP, self.setting.case(), self.setting.dtype, self.setting.device)
        self.times: dict[str, float] = {}  # ms of the codes that are correct, measured in this run
        self._spec = {k: v for k, v in spec.items() if k not in _INHERENT}
        self._book, self._numbers = Bookkeeper(reporter), itertools.count(1)
        self._final: dict[str, Any] = {}

    @property
    def at_once(self) -> int:
        """How many codes a search should ask for at a time: as many as there are workers, a group at
        least."""
        return max(BATCH, len(self.crew.able))

    @property
    def device_name(self) -> str | None:
        """What the workers' devices are called: all alike."""
        return self.crew.able[0].where["device_name"] if self.crew.able else None

    def prepare(self, say: Say) -> None:
        """Workers prepare themselves with their first piece of work."""

    def load(self, names: Sequence[str], say: Say) -> None:
        """Workers compile what their codes need."""

    def baselines(self, say: Say) -> None:
        """A record of every baseline that has none, all of one worker."""
        self._share([self._unit({"baselines": True}, "the baselines")], say)

    def segments(self, codes: Sequence[str], say: Say) -> None:
        """A record of each segment of these codes on its own, all of one worker."""
        self._share([self._unit({"segments": list(codes)}, "segments on their own")], say)

    def evaluate(self, codes: Sequence[str], say: Say = lambda text: None) -> dict[str, float | None]:
        """Milliseconds of each code, None where it failed, in equal shares on all workers."""
        size = max(1, -(-len(codes) // max(1, len(self.crew.able))))
        self.all(codes, min(size, GROUP), lambda done, total, text, eta: say(text))
        return {c: self.times.get(c) for c in codes}

    def all(self, codes: Sequence[str], size: int, progress: Callable[..., None]) -> None:
        """A record of each code, in units of ``size``."""
        groups = [list(codes[start : start + size]) for start in range(0, len(codes), size)]
        units = [self._unit({"codes": some}, f"{len(some)} schemes from {some[0]}") for some in groups]
        self.crew.share(units, self._done, self._crashed, progress=progress)

    def final(self, codes: list[str], say: Say) -> dict[str, Any]:
        """As the Evaluator's: the best codes and all baselines with the full budget, on one worker."""
        self._final = {}
        self._share([self._unit({"final": codes}, "the best")], say)
        return {
            name: {
                "ms": one["ms"],
                "speedups": {b: Speedup.from_json(s) for b, s in one["speedups"].items()},
            }
            for name, one in self._final.items()
        }

    def _unit(self, work: Mapping[str, Any], label: str) -> Unit:
        codes = set(work.get("codes", ()))
        known = [
            [key, impl, status]
            for (key, impl), status in self.reporter.statuses().items()
            if impl in codes or not encoding.is_code(impl)
        ]
        return Unit(f"{next(self._numbers)}", {**self._spec, "work": dict(work)}, known, label)

    def _share(self, units: list[Unit], say: Say) -> None:
        progress = lambda done, total, text, eta: say(text)  # noqa: E731
        self.crew.share(units, self._done, self._crashed, progress=progress)

    def _done(self, batch: Sequence[tuple[Unit, Mapping[str, Any]]], worker: Worker) -> None:
        kept = []
        for unit, found in batch:
            facts = dict(found["environment"])
            self._final = facts.pop("final", self._final)
            kept.append((unit, {**found, "environment": facts}))
        for record in self._book.book(kept, worker):
            if record.op == OP and record.status == "ok" and encoding.is_code(record.impl):
                self.times[record.impl] = record.ms

    def _crashed(self, unit: Unit, why: str) -> None:
        """A record for every code of a unit; without its baselines, or its best, a job cannot go on."""
        if "codes" not in unit.spec["work"]:
            raise RuntimeError(f"{unit.label}: {why}")
        setting, there = self.setting, self.reporter.skip()
        for code in unit.spec["work"]["codes"]:
            if (self.key, code) not in there:
                about = (OP, code, setting.case(), setting.dtype, setting.device)
                self.reporter.record(Record(*about, "crashed", why))


def traverse(spec: Mapping[str, Any], crew: Crew, reporter: Reporter) -> None:
    """The job kind ``traverse`` on a cluster."""
    from fusescope.search.sweeps import exhaustive

    exhaustive.shared(spec, reporter, Shared(spec, crew, reporter))


def search(spec: Mapping[str, Any], crew: Crew, reporter: Reporter) -> None:
    """The job kind ``search`` on a cluster."""
    from fusescope.search.sweeps import search_job

    search_job.run(spec, reporter, Shared(spec, crew, reporter))
