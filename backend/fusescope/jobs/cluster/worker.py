"""A unit of work, and a worker as the submitting job sees it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_NAMED = 4  # workers that the line of progress names
_YOUNG = 50_000  # objects made before a collection looks at them; 700 by default


@dataclass
class Unit:
    """Something to measure on one worker. spec: of the job's kind, for a measuring process; known: what it
    need not measure, [[case_key, impl, status], …]; label: for people."""

    key: str
    spec: Mapping[str, Any]
    known: list = field(default_factory=list)
    label: str = ""
    killed: int = 0
    tries: int = 0


@dataclass(frozen=True)
class Call:
    """A function and its argument as one thing, which Dask hands on as it is: a dictionary it would search
    for futures of its own, key by key."""

    function: Callable[[Any], Any]
    argument: Any


def perform(call: Call) -> Any:
    """What a worker does with a call."""
    with few_collections():
        return call.function(call.argument)


@contextlib.contextmanager
def few_collections() -> Iterator[None]:
    """Collections of garbage look at what is made from here on alone, and seldom. One over all that is
    imported stops a process for 80 to 110 ms; of 10,000 short units the submitting one spent a quarter of its
    CPU time in collections."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(_YOUNG, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


@dataclass
class Batch:
    """Units that a worker was sent at a time."""

    task: Any  # the future
    units: list[Unit]
    now: str = ""  # the key of the unit that the worker said it began
    text: str = ""


@dataclass
class Worker:
    """A worker and what it has in hand. facts: of ``at_worker.describe``; None while it is asked."""

    address: str
    name: str
    facts: dict[str, Any] | None = None
    asked: Any = None  # the future of its facts
    batches: list[Batch] = field(default_factory=list)  # the first one runs, the next waits there
    done: int = 0
    lost: bool = False
    refused: bool = False

    @property
    def running(self) -> Batch | None:
        """The batch that it runs: the last one of which it said that a unit began, else the first."""
        said = [batch for batch in self.batches if batch.now]
        return said[-1] if said else next(iter(self.batches), None)

    @property
    def now(self) -> str:
        """The label of the unit that it is at, "" where that is not known."""
        batch = self.running
        return next((u.label for u in batch.units if u.key == batch.now), "") if batch else ""

    @property
    def where(self) -> dict[str, Any]:
        """What a record says of the device that measured it: device_name, device_uuid, host."""
        facts = self.facts or {}
        known = facts.get("environment") or {}
        keys = ("device_name", "device_uuid")
        return {key: known.get(key) for key in keys} | {"host": facts.get("host")}

    def line(self) -> dict[str, Any]:
        """Of the run's environment: who it is, what it runs now and how many units it has done."""
        known = (self.facts or {}).get("environment") or {}
        now, text = self.now, self.running.text if self.running else ""
        return {
            "name": self.name,
            **self.where,
            "pid": (self.facts or {}).get("pid"),
            "driver": known.get("driver"),
            "torch": known.get("torch"),
            "done": self.done,
            "lost": self.lost,
            "now": f"{now}: {text}" if now and text else now or text or None,
        }


def words(able: Sequence[Worker]) -> str:
    """The line of progress: "2 workers: worker 1 case 3 of 48: checking v2; worker 2 …"."""
    if not able:
        return "waiting for a worker"
    count = f"{len(able)} worker{'' if len(able) == 1 else 's'}"
    named = able if len(able) <= _NAMED else ()
    busy = [f"{w.name} {now}" for w in named if (now := w.line()["now"])]
    return f"{count}: {'; '.join(busy)}" if busy else f"{count} at work"


def result(future) -> Any:
    """What a task of Dask gave, once it has ended; None where it failed or was lost."""
    try:
        return future.result() if future.status == "finished" else None
    except (Exception, asyncio.CancelledError):  # lost on the way here
        return None


def sentence(future) -> str:
    """Why a task of Dask has no result."""
    e = future.exception()
    return " ".join(str(e).split()) or type(e).__name__ if e else future.status


def is_lost(future) -> bool:
    """Whether a task that gave nothing ended with its worker, and not by itself."""
    if future.status in ("cancelled", "lost", "finished", "pending"):
        return True
    return type(future.exception()).__name__ in ("KilledWorker", "Cancelled", "CommClosedError")
