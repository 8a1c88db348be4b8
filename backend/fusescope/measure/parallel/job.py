"""A model over several devices, from specification to records: what every rank runs.

Each case is a group of implementations that are sampled in turn (strong scaling: the same work for all); with
weak scaling a further group for each number of ranks, whose batch is as many times the case's. All are
checked before and after on fresh tokens against the model in float64 on one device.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from fusescope.core.records import BenchSpec
from fusescope.core.reporter import Reporter
from fusescope.measure import failures
from fusescope.measure.compare import Stop
from fusescope.measure.device import device_state
from fusescope.measure.parallel import checks, collectives, probes, results, sampling, shares
from fusescope.measure.parallel.world import World
from fusescope.models.describe import layouts
from fusescope.models.parallel import groups as process_groups
from fusescope.models.parallel.placed import Placed
from fusescope.models.run import build

_TRACED = {"wait": 0, "warmup": 1, "active": 3}
"""Calls of a trace, the discarded one included."""


@dataclass(frozen=True)
class Group:
    """Implementations that are sampled together on a case; scaling: "strong" or "weak"."""

    case: Mapping[str, Any]
    impls: tuple[str, ...]
    scaling: str


def groups(spec: Mapping[str, Any]) -> Iterator[Group]:
    """The groups of a specification, in order; a case and implementation occurs once."""
    seen: set[tuple[str, str]] = set()
    for case in spec["cases"]:
        counts = {layouts.named(i)[1].ranks for i in spec["impls"]} - {1} if spec["weak"] else ()
        found = [Group(case, tuple(spec["impls"]), "strong")]
        for n in sorted(counts):
            members = tuple(i for i in spec["impls"] if layouts.named(i)[1].ranks == n)
            found.append(Group({**case, "batch": case["batch"] * n}, members, "weak"))
        for group in found:
            new = tuple(i for i in group.impls if (str(sorted(group.case.items())), i) not in seen)
            seen |= {(str(sorted(group.case.items())), i) for i in new}
            if new:
                yield Group(group.case, new, group.scaling)


Trace = Callable[..., Any]
"""``trace(call, wait=, warmup=, active=, before_step=)`` keeps a trace of this rank's calls."""


def run(spec: Mapping[str, Any], world: World, reporter: Reporter | None, trace: Trace | None = None) -> None:
    """Every rank's work; ``reporter`` is rank 0's. trace: where spec["trace"] is not None. Stopped elsewhere
    where rank 0 raises."""
    Job(spec, world, reporter, trace).run()


class Job:
    def __init__(self, spec: Mapping[str, Any], world: World, reporter: Reporter | None, trace: Trace | None):
        self.spec, self.world, self.reporter, self.trace = spec, world, reporter, trace
        own = {k: v for k, v in spec.items() if k in BenchSpec.__dataclass_fields__}
        self.bench = BenchSpec.from_json(own)
        self.name = spec["op"].removeprefix("model:")
        self.groups = list(groups(spec))
        self.state: Callable[[], dict] = dict
        self.probed: list[dict] = []
        self._kept: tuple[dict, build.Model] | None = None

    def run(self) -> None:
        if self.world.cuda:
            pids = self.world.gather(os.getpid())
            device_state.expect(pids or ())
            if self.world.first:
                self.state = device_state.reader(self.world.device)
        if self.spec["links"] and self.world.size > 1:
            self.say(0, "measuring the collectives")
            found = collectives.measure(self.world, self.check)
            if self.reporter:
                self.reporter.environment(links=found)
        for number, group in enumerate(self.groups):
            self._group(number, group)
        self.say(len(self.groups), "done")

    def check(self) -> None:
        """Raise Cancelled at rank 0 where a stop was requested."""
        if self.reporter:
            self.reporter.check()

    def say(self, done: float, text: str) -> None:
        if self.reporter:
            steps = 100
            self.reporter.progress(int(done * steps), len(self.groups) * steps, text)

    def _group(self, number: int, group: Group) -> None:
        world, spec, first = self.world, self.spec, self.reporter
        key = results.key(spec, group.case)
        known = world.decide(lambda: {i: s for (k, i), s in first.statuses().items() if k == key})
        due = [i for i in group.impls if i not in known]
        if not due:
            return
        together = self._with_partners(group, due, known)
        where = f"{group.scaling} scaling, case {number + 1} of {len(self.groups)}: "
        self.say(number, f"{where}building the model")
        model = self._model(group)
        inputs = build.inputs(model, group.case, spec["seed"])
        own = self._own(group, model, inputs)
        measured: dict[str, results.Found] = {}
        for impl in together:
            self.doing(key, impl)
            measured[impl] = self._prepare(impl, model, inputs if impl in group.impls else own)
        self.say(number + 0.1, f"{where}checking against one device in float64")
        asked = {i: f for i, f in measured.items() if i in group.impls}
        self._checked(key, asked, model, inputs, spec["seed"])
        placed = {i: f.placed for i, f in measured.items() if f.status is None}
        if placed:
            self._sample(number, where, key, group, placed, measured)
            self.say(number + 0.7, f"{where}checking again, on fresh tokens")
            self._checked(key, asked, model, inputs, spec["seed"] + 1)
        if group.scaling == "strong" and spec["probes"]:
            self.say(number + 0.8, f"{where}timing a rank's share on one device")
            self._probe(model, inputs, group.case)
        for impl, found in asked.items():  # after all that is timed: a profiler leaves traces of its own
            if found.status is None:
                self.doing(key, impl)
                self._inspect(found)
        if group.scaling == "strong" and (found := asked.get(spec["trace"])) and found.status is None:
            self.say(number + 0.9, f"{where}tracing {found.name} on every rank")
            self._trace(found)
        if self.reporter:
            for impl in due:
                results.emit(self.reporter, self.bench, spec, group, measured, impl)
        measured.clear()
        asked.clear()
        placed.clear()
        gc.collect()
        if world.cuda:
            torch.cuda.empty_cache()

    def _model(self, group: Group) -> build.Model:
        """The group's model, kept for the next one: groups of a case differ by their batch alone."""
        about = {**group.case, "batch": None}
        if self._kept is None or self._kept[0] != about:
            self._kept = None  # before the next one takes its memory
            gc.collect()
            model = build.build(self.name, group.case, self.spec["dtype"], self.world.device)
            self._kept = about, model
        return self._kept[1]

    def _with_partners(self, group: Group, due: list[str], known: Mapping[str, str]) -> list[str]:
        """What is sampled for the sake of those due: with them the single devices that they are compared
        with, of weak scaling on the case itself."""
        single = dict.fromkeys(layouts.named(i)[0] for i in due)
        if group.scaling == "strong":
            single[self.spec["baseline"]] = None
            single = {i: None for i in single if i in group.impls and known.get(i, "ok") == "ok"}
        return list(dict.fromkeys([*due, *single]))

    def _own(self, group: Group, model: build.Model, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Inputs for the partners of weak scaling: the case before its batch grew."""
        if group.scaling == "strong":
            return inputs
        ranks = layouts.named(group.impls[0])[1].ranks
        case = {**group.case, "batch": group.case["batch"] // ranks}
        return build.inputs(model, case, self.spec["seed"])

    def doing(self, key: str, impl: str) -> None:
        self.world.decide(self.check)
        if self.reporter:
            self.reporter.doing(key, impl, self.spec["case_deadline_s"])

    def _prepare(self, impl: str, model: build.Model, inputs: Mapping[str, Any]) -> results.Found:
        """The implementation on its ranks after its first call; a failure of one rank is everybody's."""
        found, failure = results.Found(impl), None
        before = torch.cuda.memory_allocated(self.world.device) if self.world.cuda else None
        try:
            found.placed = Placed(impl, model, inputs, self.world.rank, self.spec["micro_batches"])
        except Exception as e:  # the others learn of it below
            failure = failures.cause(e)
        failure = self._together(failure)
        if failure is None:
            try:
                found.first_ms = sampling.timed(self.world, found.placed)
            except Exception as e:
                failure = failures.cause(e)
            if found.placed.layout.tp * found.placed.layout.pp > 1:
                self.world.meet(failure)
            failure = self._together(failure)
        if failure is not None:
            found.status, found.reason = failure
            found.placed = None
            return found
        weights = found.placed.weights_bytes if found.placed.member else None
        peak = None
        if before is not None and found.placed.member:
            torch.cuda.reset_peak_memory_stats(self.world.device)
            base = torch.cuda.memory_allocated(self.world.device)
        self.world.barrier()
        if found.placed.member:
            found.placed.run()
            self.world.wait()
            if before is not None:
                peak = weights + torch.cuda.max_memory_allocated(self.world.device) - base
        firsts = self.world.gather((found.first_ms, weights, peak))
        if firsts is not None:
            members = firsts[: found.placed.layout.ranks]
            found.first_ms = max(ms for ms, *_ in members)
            found.weights = [w for _, w, _ in members]
            found.peaks = [p for *_, p in members]
        return found

    def _together(self, failure: tuple[str, str] | None) -> tuple[str, str] | None:
        """The failure of the lowest rank that has one, at every rank."""
        said = self.world.gather(failure)
        return self.world.decide(lambda: next((f for f in said if f is not None), None))

    def _checked(self, key: str, measured, model, inputs, seed: int) -> None:
        """Compare every implementation that has not failed with the reference, on fresh tokens."""
        checks.fresh(inputs, model.config.vocab, seed)
        expected = checks.Reference(self.world, model, inputs)
        for found in measured.values():
            if found.status is None:
                self.doing(key, found.name)
                found.placed.renew()
                outcome = expected.compare(found.placed)
                outcome = self.world.decide(lambda outcome=outcome: outcome)
                found.checked(outcome)

    def _sample(self, number, where, key, group, placed, measured) -> None:
        spec, bench = self.spec, self.bench
        compared = group.scaling == "strong" and spec["baseline"] in placed
        baseline = spec["baseline"] if compared else None
        if self.reporter:
            seconds = bench.budget_s * len(placed) * 3 + bench.case_deadline_s
            self.reporter.doing(key, spec["baseline"] if baseline else next(iter(placed)), seconds)

        def look(spent: float) -> dict:
            self.check()
            self.say(number + 0.2 + 0.5 * spent, f"{where}sampling")
            return self.state()

        series = sampling.sample(
            self.world, placed, baseline, Stop.of(bench, len(placed)), spec["seed"], look
        )
        for impl, taken in series.items():
            measured[impl].series = taken

    def _inspect(self, found: results.Found) -> None:
        """Where the time of a call goes on each rank; unknown where the trace cannot be read."""
        own, why = None, None
        if found.placed.layout.ranks == 1:
            return
        barrier = self.world.barrier
        if found.placed.member:
            try:
                own = shares.of_call(found.placed.run, self.world.device, barrier).to_json()
            except (RuntimeError, StopIteration) as e:
                why = failures.one_line(e)
        else:
            for _ in range(shares.CALLS):
                barrier()
        ranks = self.world.gather((own, why))
        if ranks is not None:
            found.shares = [s for s, _ in ranks[: found.placed.layout.ranks]]
            found.shares_unknown = next((w for _, w in ranks if w), None)

    def _trace(self, found: results.Found) -> None:
        """A trace of some calls by each rank that takes part, a barrier before each; of several cases the
        last one's stay."""
        if found.placed.member:
            self.trace(found.placed.run, before_step=self.world.barrier, **_TRACED)
            return
        for _ in range(sum(_TRACED.values())):
            self.world.barrier()

    def _probe(self, model, inputs, case) -> None:
        """At rank 0, while the others wait: the share of a rank, for predictions."""

        alone = process_groups.own((0,))  # of all ranks' making
        attentions = dict.fromkeys(layouts.named(i)[0] for i in self.spec["impls"])

        def work() -> None:
            found = []
            for attention in attentions:
                found += probes.measure(attention, model, inputs, alone, self.world.wait, self.check)
            self.probed.append({"case": dict(case), "points": found})
            self.reporter.environment(probes=self.probed)

        self.world.decide(work)
