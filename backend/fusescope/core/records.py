"""The typed records that travel between rooms and lie in run folders.

States exclude nonsense: a record that is not ``ok`` carries no latency, absence is ``None`` and never a
sentinel. ``to_json`` gives plain JSON values; ``from_json`` raises ValueError for a value of another type
(``core.schema.typed``) and ignores keys it does not know, so older readers survive newer writers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePath
from typing import Any

from fusescope.core.machine.conditions import NO_DEVICE, Conditions
from fusescope.core.schema.extra import Extra
from fusescope.core.schema.lines import encode
from fusescope.core.schema.run_files import check_spec
from fusescope.core.schema.typed import build, plain
from fusescope.core.verdict import SAME_WITHIN, of_interval, shown, words

STATUSES = ("ok", "wrong", "unsupported", "oom", "timeout", "crashed", "error")
MODES = ("eager", "eager_cold", "graph", "graph_cold")
HEADLINE = ("graph", "eager", "graph_cold", "eager_cold")  # modes, the one to show first
RUN_STATES = ("queued", "running", "done", "failed", "cancelled", "interrupted", "incomplete")
"""incomplete is what a reader finds of a run that was done: part of its files is gone."""
DTYPES = ("float32", "float16", "bfloat16")
SCHEMA_VERSION = 1
YEAR_10000 = 253_370_764_800.0  # Unix seconds that a date can still be written of

_NOT_NEGATIVE = {"low": 0}
_MOMENT = {"low": 0, "high": YEAR_10000}


def case_key(op: str, case: Mapping[str, Any], dtype: str, device: str) -> str:
    """One string that names a case; equal for equal cases whatever the order of their keys."""
    return encode([op, dict(sorted(case.items())), dtype, device])


def short(impl: str) -> str:
    """An implementation's name as a label: a user's file without its folders."""
    path, colon, function = impl.rpartition(":")
    return f"{PurePath(path).name}:{function}" if colon and path.endswith(".py") else impl


@dataclass(frozen=True)
class Time:
    """Median latency in ms with its 95 % interval over n samples; converged = the interval is narrower than
    the requested precision, or than a third of the difference from the baseline."""

    median: float = field(metadata=_NOT_NEGATIVE)
    low: float = field(metadata=_NOT_NEGATIVE)
    high: float = field(metadata=_NOT_NEGATIVE)
    n: int = field(metadata=_NOT_NEGATIVE)
    converged: bool


@dataclass(frozen=True)
class Times:
    """Milliseconds: the first (cold) call, the eager launch path, the kernel's own time by graph replay."""

    first: float | None = field(default=None, metadata=_NOT_NEGATIVE)
    eager: Time | None = None
    eager_cold: Time | None = None
    graph: Time | None = None
    graph_cold: Time | None = None


@dataclass(frozen=True)
class Accuracy:
    """Worst error against the reference over all checked inputs; reference is "float64" or "float32"."""

    max_abs: float
    max_rel: float
    cosine: float
    reference: str


@dataclass(frozen=True)
class Speedup:
    """The ratio of the shown medians, baseline / this (> 1 is faster), with its 95 % interval over paired
    rounds and, for more than one process, over processes (analysis/statistics.py). Where it did not converge
    the interval is wider (``core.verdict.shown``) than that of the rounds, ``sampled``. The verdict follows
    from the interval and the band ``same_within`` alone: what a file says of it is not read."""

    of: str = field(metadata={"choices": MODES})
    median: float
    low: float
    high: float
    verdict: str = field(init=False)
    same_within: float = SAME_WITHIN
    processes: int = 1
    converged: bool | None = None
    sampled: tuple[float, ...] | None = None

    def __post_init__(self):
        if self.sampled and len(self.sampled) != 2:
            raise ValueError("sampled is the low and the high end of an interval")
        ends = self.low, self.high
        known, low, high = shown(self.median, *ends, self.same_within, self.converged)
        sampled = None if known else self.sampled or ends
        kind = of_interval(self.median, low, high, self.same_within)
        vars(self).update(low=low, high=high, verdict=kind, converged=known, sampled=sampled)

    @property
    def words(self) -> str:
        """The verdict as people read it."""
        return words(self.verdict, self.same_within)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Speedup:
        return build(cls, data)


@dataclass(frozen=True)
class Rate:
    """TFLOP/s over live mask elements (effective) and over the tiles actually computed (executed)."""

    effective: float | None
    executed: float | None


@dataclass(frozen=True)
class Resources:
    """Registers per thread, shared memory per block (bytes), spilled bytes per thread, theoretical occupancy
    0 … 1."""

    registers: int | None = None
    shared: int | None = None
    spills: int | None = None
    occupancy: float | None = None


@dataclass(frozen=True)
class Record:
    """One implementation on one case; a line of results.jsonl and an element of bench --json."""

    op: str
    impl: str
    case: Mapping[str, Any]
    dtype: str
    device: str
    status: str
    reason: str | None = None
    accuracy: Accuracy | None = None
    time_ms: Times | None = None
    speedup: Speedup | None = None
    tflops: Rate | None = None
    gbps: float | None = None
    throttled: bool = False  # its clock was another than the baseline's (conditions.clock_note)
    resources: Resources | None = None
    backend: str | None = None
    source_hash: str | None = None
    extra: Mapping[str, Any] | None = None  # the keys of Extra that there are
    conditions: Conditions | None = None  # None: written before records had them

    def __post_init__(self):
        if self.status not in STATUSES:
            raise ValueError(f"status is one of {', '.join(STATUSES)}, not {self.status!r}")
        if self.status == "ok" and self.time is None:
            raise ValueError("an ok record carries its times")
        if self.status != "ok" and (self.time_ms or self.speedup or self.tflops or self.gbps):
            raise ValueError(f"a record that is {self.status} carries no latency")
        if self.status != "ok" and not self.reason:
            raise ValueError(f"a record that is {self.status} says why")
        if self.extra:
            build(Extra, self.extra, "extra")

    @cached_property
    def case_key(self) -> str:
        return case_key(self.op, self.case, self.dtype, self.device)

    def time_of(self, mode: str) -> Time | None:
        """The time taken in one of MODES; None where there is none."""
        return getattr(self.time_ms, mode) if self.time_ms else None

    @property
    def main(self) -> str | None:
        """The mode of the headline time, the first of HEADLINE that was taken; None without a time."""
        times = self.time_ms
        if times:
            for mode in HEADLINE:
                if getattr(times, mode):
                    return mode
        return None

    @property
    def time(self) -> Time | None:
        """The headline time."""
        return self.time_of(mode) if (mode := self.main) else None

    @property
    def ms(self) -> float | None:
        """The median of the headline time in ms."""
        return self.time.median if self.time else None

    def to_json(self) -> dict[str, Any]:
        whole = plain(self)
        for name in ("extra", "conditions"):  # a record without them is as earlier readers know it
            if whole[name] is None:
                del whole[name]
        return whole

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Record:
        return build(cls, data)


@dataclass(frozen=True)
class BenchSpec:
    """What a comparison measures: every implementation on every case, in shuffled rounds, in each of
    ``processes`` fresh processes.

    impls: names as the operator lists them, or "file.py:function". cases: complete values of the operator's
    parameters. cache: "warm", "cold" or "both". budget_s, min_samples, min_s and precision are measuring rule
    4 (seconds for all implementations together, count and seconds for each, relative width). same_within:
    half-width of the band of speed-ups that count as the same. case_deadline_s bounds one implementation on
    one case, its first call included. wait_idle_s: the most seconds that all samplings together wait for
    idle CPUs.
    """

    op: str
    impls: tuple[str, ...]
    cases: tuple[Mapping[str, Any], ...]
    baseline: str
    dtype: str = "float32"
    device: str = "cpu"
    cache: str = "both"
    budget_s: float = 5.0
    min_samples: int = 10
    min_s: float = 0.2
    precision: float = 0.01
    same_within: float = SAME_WITHIN
    processes: int = 1
    seed: int = 0
    case_deadline_s: float = 300.0
    wait_idle_s: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self) | {"impls": list(self.impls), "cases": [dict(c) for c in self.cases]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> BenchSpec:
        return build(cls, data)


@dataclass(frozen=True)
class Progress:
    done: int = field(default=0, metadata=_NOT_NEGATIVE)
    total: int = field(default=0, metadata=_NOT_NEGATIVE)
    message: str = ""
    eta_s: float | None = field(default=None, metadata=_NOT_NEGATIVE)
    updated: float | None = field(default=None, metadata=_MOMENT)  # Unix seconds


@dataclass(frozen=True)
class Run:
    """One run folder as it stands: run.json with notes.json next to it. Times are Unix seconds."""

    id: str
    kind: str
    spec: Mapping[str, Any]
    status: str = field(metadata={"choices": RUN_STATES})
    reason: str | None = None
    created: float | None = field(default=None, metadata=_MOMENT)
    started: float | None = field(default=None, metadata=_MOMENT)
    finished: float | None = field(default=None, metadata=_MOMENT)
    progress: Progress = field(default_factory=Progress)
    environment: Mapping[str, Any] = field(default_factory=dict)
    title: str = ""
    tags: tuple[str, ...] = ()
    notes: str = ""
    recorded: bool = False  # is under profiles/recorded/
    imported: bool = False  # came as a file that may be anybody's
    schema: int = SCHEMA_VERSION

    @property
    def live(self) -> bool:
        return self.status in ("queued", "running")

    @property
    def ended(self) -> float | None:
        """When it finished, else started, else was created."""
        return self.finished or self.started or self.created

    @property
    def device_name(self) -> str:
        """What the charts call the device this was measured on, e.g. "NVIDIA H200"."""
        return str(self.environment.get("device_name") or NO_DEVICE)

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self) | {"tags": list(self.tags)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Run:
        run = build(cls, data)
        check_spec(run.spec)
        return run
