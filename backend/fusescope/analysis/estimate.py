"""What a comparison will take, stage by stage: before it is started, and what of it is left while it runs.

A stage that this machine has been through is expected to take as long again, at this very case if that was
measured, else at the nearest size (core/machine/stage_times.py). What was never measured here has a prior:
round figures of a two-core machine and of a data-centre GPU.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from fusescope.core.records import BenchSpec

# priors in seconds, by kind of device
_START = {"cpu": 1.5, "cuda": 4.0}  # a process, the libraries, the context
_LOAD = 0.5  # libraries of kernels
_CEILINGS = {"cpu": 2.5, "cuda": 3.0}  # what the device can do, measured once per device and dtype
_PROCESS = {"cpu": 3.0, "cuda": 8.0}  # each of several processes: it imports everything again
_ONCE = ("start", "build", "ceilings")  # the first phases of a plan: of the first process alone
_CALLS = {"cpu": 0.02, "cuda": 0.1}  # checking one implementation of something tiny
_CASE = {"cpu": 0.02, "cuda": 0.2}  # inputs and reference of something tiny; what follows the sampling
_COMPILER = {"cpu": 10.0, "cuda": 6.0}  # the first compilation of a process: imports and the compiler's start
_COMPILED = 0.4  # of a first call is left where the compiler finds its result in a cache


@dataclass(frozen=True)
class _Priors:
    """FLOP per second of a call and of the float64 reference; calls of one implementation until it is timed;
    after the sampling, seconds and calls of each, of where a model's time goes."""

    flops: float
    flops64: float
    checked: int
    after_s: float = 0.0
    after: int = 0


_OPERATOR = {"cpu": _Priors(6e10, 2e10, 6), "cuda": _Priors(1e13, 5e12, 6)}
_MODEL = {"cpu": _Priors(8e10, 4e10, 4, 2.5, 2), "cuda": _Priors(1e14, 2e13, 4, 2.5, 2)}
"""Of a whole model, most of which is products of large matrices."""

_BYTES = {"cpu": 4e9, "cuda": 1e12}
_COMPARED = {"cpu": 6e8, "cuda": 2e10}  # bytes of inputs and results that are copied and compared per second
_REFERENCES = 3  # contiguous, fresh values, strided

# the rules of measure/compare.py
_ROUNDS, _FEWEST_ROUNDS, _TURN_S, _MOVING, _OVERTIME = 60, 5, 0.004, 1.25, 3.0
_SHARE = {"cpu": 0.9, "cuda": 0.5}  # of the time from the fewest rounds to the budget
_MODE = {"cpu": 0.1, "cuda": 0.15}  # warm-up or capture, and the comparison of results, per implementation

_STEPS_A_DECADE = 2  # size classes
_NEAREST = 6  # classes away that still count

Past = Mapping[str, float]


@dataclass(frozen=True)
class Facts:
    """What a plan needs beyond the specification. device: its name; work: FLOP, bytes and FLOP without
    skipping of a call, by case; skipping: the implementations that leave out what a mask hides; compile_s:
    seconds in a compiler for a new case, by implementation (0 or none: it is not compiled); build_s: of
    kernels that are not built; reference_s: prior of what making the reference takes besides its work; busy:
    how many times as long the CPUs take that others use too (core.machine.load.crowding), for all but
    sampling, which has a budget."""

    device: str
    work: Sequence[tuple[float, float, float]]
    compile_s: Mapping[str, float] = field(default_factory=dict)
    build_s: float = 0.0
    reference_s: float = 0.0
    busy: float = 1.0
    skipping: Collection[str] = ()

    @property
    def of_a_model(self) -> bool:
        return self.reference_s > 0

    @property
    def compared(self) -> float:
        """The share of a call's bytes that are copied and compared: none of a model's, which are weights."""
        return 0.0 if self.of_a_model else 1.0


@dataclass(frozen=True)
class Part:
    """Seconds expected, and the keys under which the time is remembered, the most specific first. ratio: a
    key for the time over the prior, and the prior."""

    seconds: float
    keys: tuple[str, ...] = ()
    compiles: bool = False
    ratio: tuple[str, float] | None = None


@dataclass(frozen=True)
class Phase:
    """A stretch of a job whose parts (implementations, mostly) may take turns."""

    stage: str
    parts: Mapping[str, Part]

    @property
    def seconds(self) -> float:
        return sum(p.seconds for p in self.parts.values())

    def times(self, factor: float) -> Phase:
        return Phase(self.stage, {n: replace(p, seconds=factor * p.seconds) for n, p in self.parts.items()})


def seconds(spec: BenchSpec, facts: Facts, past: Past) -> float:
    """Expected wall time of a comparison in seconds, all its processes included."""
    return sum(map(sum, spread(spec, facts, past)))


def spread(spec: BenchSpec, facts: Facts, past: Past) -> list[list[float]]:
    """Expected seconds of each case in each process. What a process does once counts to its first case."""
    phases = plan(spec, facts, past)
    once, cases = phases[: len(_ONCE)], phases[len(_ONCE) :]
    share = len(cases) // len(spec.cases)
    found = [
        [sum(p.seconds for p in cases[first : first + share])] * spec.processes
        for first in range(0, len(cases), share)
    ]
    if spec.processes > 1:
        imports = facts.busy * _PROCESS[spec.device.split(":")[0]]
        found[0] = [s + imports for s in found[0]]
    found[0][0] += sum(p.seconds for p in once)
    return found


def plan(spec: BenchSpec, facts: Facts, past: Past) -> list[Phase]:
    """The phases of one process, in order: start, build, ceilings, and of each case reference and checks,
    each mode, and the finish."""
    known = _Known(spec, facts, past)
    phases = [
        Phase("start", {"start": known.start()}),
        Phase("build", {"build": known.build()}),
        Phase("ceilings", {"ceilings": known.ceilings()}),
    ]
    impls = list(dict.fromkeys((*spec.impls, spec.baseline)))
    first = True  # that compiles in this process
    for case, work in zip(spec.cases, facts.work, strict=True):
        known.case(case, work)
        checks = {"reference": known.reference()}
        for impl in impls:
            compiles = facts.compile_s.get(impl, 0.0)
            checks[impl] = known.check(impl, compiles, first)
            first = first and not compiles
        phases.append(Phase("check", checks))
        phases += [Phase("sample", {mode: known.sample(mode, impls)}) for mode in modes(spec)]
        phases.append(Phase("finish", {"finish": known.finish(impls)}))
    return [p.times(facts.busy) if p.stage != "sample" else p for p in phases]


def modes(spec: BenchSpec) -> list[str]:
    """The modes that a specification asks for, the warm ones first."""
    kinds = ("graph", "eager") if spec.device.startswith("cuda") else ("eager",)
    warm = list(kinds) if spec.cache != "cold" else []
    return warm + ([f"{k}_cold" for k in kinds] if spec.cache != "warm" else [])


def remembered(
    phase: Phase,
    spent: Mapping[str, float],
    busy: Mapping[str, float] = MappingProxyType({}),
    compiled: Collection[str] = (),
) -> dict[str, float]:
    """What a phase that has been gone through teaches: {key: seconds on idle CPUs}; busy: how many times as
    long each part took because others used the CPUs, 1 where it is not named. compiled: parts that compilers
    worked for, which is remembered of a new case as it was, and of this very case as what their caches will
    leave of it; what they found in a cache says nothing of a new case."""
    found = {}
    for name, part in phase.parts.items():
        if name not in spent:
            continue
        took = spent[name] / (1.0 if phase.stage == "sample" else busy.get(name, 1.0))
        for number, key in enumerate(part.keys):
            again = part.compiles and number == 0 and name in compiled
            found[key] = took * _COMPILED if again else took
            if part.compiles and name not in compiled:
                break
        if part.ratio:
            found[part.ratio[0]] = took / part.ratio[1]
    return found


class _Known:
    """Looks stages up for one specification, case by case."""

    def __init__(self, spec: BenchSpec, facts: Facts, past: Past):
        self.spec, self.facts, self.past = spec, facts, past
        self.kind = spec.device.split(":")[0]
        self.priors = (_MODEL if facts.of_a_model else _OPERATOR)[self.kind]
        self.subject = f"{facts.device}|{spec.op}|{spec.dtype}"

    def case(self, values: Mapping, work: tuple[float, float, float]) -> None:
        self.digest = _digest(values)
        self.executed, self.bytes, self.dense = work
        self.compared_s = self.facts.compared * self.bytes / _COMPARED[self.kind]

    def flop(self, impl: str) -> float:
        return self.executed if impl in self.facts.skipping else self.dense

    def call_s(self, impl: str) -> float:
        return max(self.flop(impl) / self.priors.flops, self.bytes / _BYTES[self.kind])

    def start(self) -> Part:
        return self.once("start", _START[self.kind])

    def build(self) -> Part:
        """Loading the kernels, after building them."""
        load = self.once("load", _LOAD)
        return Part(facts.build_s + load.seconds) if (facts := self.facts).build_s else load

    def ceilings(self) -> Part:
        return self.once(f"ceilings {self.spec.dtype}", _CEILINGS[self.kind])

    def once(self, stage: str, prior: float) -> Part:
        key = f"{stage}|{self.facts.device}|{self.kind}"
        return Part(self.past.get(key, prior), (key,))

    def sized(
        self, stage: str, name: str, flop: float, prior: float, fixed: float, compiles: bool = False
    ) -> Part:
        """By the case itself, by its size, by the nearest size that was measured, or the prior."""
        stem = f"{stage}|{self.subject}|{name}"
        size = round(_STEPS_A_DECADE * math.log10(max(flop, self.bytes, 1.0)))
        exact, sized = f"{stem}|{self.digest}", f"{stem}|size {size}"
        for key in (exact, sized):
            if key in self.past:
                return Part(self.past[key], (exact, sized), compiles)
        for off in (n for step in range(1, _NEAREST + 1) for n in (-step, step)):
            took = self.past.get(f"{stem}|size {size + off}")
            if took is not None:
                there = fixed + (prior - fixed) * 10 ** (off / _STEPS_A_DECADE)
                return Part(_of_another_size(took, there, prior), (exact, sized), compiles)
        return Part(prior, (exact, sized), compiles)

    def reference(self) -> Part:
        """In float64 and of all scores, whatever a mask hides."""
        fixed = _CASE[self.kind] + self.facts.reference_s
        once = self.dense / self.priors.flops64 + 4 * self.bytes / _BYTES[self.kind]
        prior = fixed + _REFERENCES * once + self.compared_s
        return self.sized("reference", "", self.dense, prior, fixed)

    def check(self, impl: str, compile_s: float, first: bool) -> Part:
        starts = first and compile_s > 0
        fixed = _CALLS[self.kind] + compile_s + (_COMPILER[self.kind] if starts else 0.0)
        prior = fixed + self.priors.checked * (self.call_s(impl) + self.compared_s)
        name = impl + (" first" if starts else "")
        return self.sized("check", name, self.flop(impl), prior, fixed, compile_s > 0)

    def sample(self, mode: str, impls: Sequence[str]) -> Part:
        """measure/compare.py: the fewest rounds at least, the budget at most; slow calls overtime."""
        spec = self.spec
        asked = (sorted(impls), spec.budget_s, spec.min_s, spec.min_samples, spec.precision, spec.same_within)
        key = f"sample|{self.subject}|{mode}|{self.digest}|{_digest(asked)}"
        calls_s = [self.call_s(impl) for impl in impls]
        one_round = _MOVING * sum(max(_TURN_S, call_s) for call_s in calls_s)
        least = max(_ROUNDS * one_round, len(impls) * spec.min_s)
        usual = least + _SHARE[self.kind] * max(0.0, spec.budget_s - least)
        slow = max(_FEWEST_ROUNDS * one_round, min(_OVERTIME * spec.budget_s, spec.min_samples * one_round))
        prior = min(usual, max(spec.budget_s, slow)) + len(impls) * _MODE[self.kind] + 4 * sum(calls_s)
        ratio = f"sample|{self.facts.device}|{spec.op}|{mode}|{_digest(asked[1:])}|over the prior"
        expected = self.past.get(key, prior * self.past.get(ratio, 1.0))
        return Part(expected, (key,), ratio=(ratio, prior))

    def finish(self, impls: Sequence[str]) -> Part:
        fixed = _CASE[self.kind] * len(impls) + self.priors.after_s
        prior = fixed + self.priors.after * sum(map(self.call_s, impls))
        return self.sized("finish", "", self.dense, prior, fixed)


def _of_another_size(took: float, there: float, here: float) -> float:
    """Seconds of a stage that took ``took`` at another size; there, here: its priors at the two. What it took
    for its prior is partly this machine's speed, partly that size's own: half of it, as a factor, is expected
    here. Of 96 pairs of sizes of five operators (two CPU cores) that is off by a factor of 2.0 in the root
    mean square, the whole factor by 2.8, the difference of the two priors by 4.1."""
    return here * math.sqrt(took / there)


def _digest(value) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:12]
