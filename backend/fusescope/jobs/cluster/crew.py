"""Units of work shared among the workers of a cluster, by the process that alone writes the run.

A batch is one unit, or as many short ones as take half a second. Its worker gives back what it has not begun
when a batch takes longer than it should: how long units take need not be known before. While it works at a
short batch a worker has the next one waiting, so that it is not idle while this process books what it found.
Idle workers get batches of different lengths: what is found comes little by little then, not from all of them
at a time. What a lost worker had in hand is done elsewhere; a unit to which two workers were lost is given
up. What a batch found is taken once, whatever a lost worker may still send.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from fusescope.jobs.cluster import at_worker
from fusescope.jobs.cluster.roster import Roster
from fusescope.jobs.cluster.worker import Batch, Unit, Worker, few_collections, is_lost, sentence, words

BATCH_S = 0.5  # of work that is sent at a time
_LEAST_S = 0.05  # of it, where there is enough left: a batch costs this process some milliseconds
_MOST = 500  # units in a batch
_KILLED = 2  # workers that one unit may have lost
_TRIES = 8  # times that a unit is sent in all, whatever became of the workers
_SAY_EVERY_S = 0.5
_RECENT = 64


Done = Callable[[Sequence[tuple[Unit, Mapping[str, Any]]], Worker], None]
GaveUp = Callable[[Unit, str], None]
Progress = Callable[[int, int, str, float | None], None]


class Crew(Roster):
    """The workers of one job, and what they have in hand."""

    def __init__(self, *about, **more):
        self._took: deque[float] = deque(maxlen=_RECENT)  # seconds of the last units
        self._waiting: deque[Unit] = deque()
        self._give_up: GaveUp = lambda unit, why: None
        self._finish: Done = lambda found, worker: None
        self._said_at, self._progress = 0.0, None
        super().__init__(*about, **more)

    def share(
        self,
        units: Iterable[Unit],
        done: Done,
        gave_up: GaveUp,
        total: int = 0,
        progress: Progress | None = None,
    ) -> None:
        """Have every unit measured; ``done`` is called with the units of a batch and what each found as soon
        as that is here, ``gave_up`` with the reason where workers were lost to a unit. total: of the
        progress, of which the units are the rest; progress: who is told instead of the reporter.

        Raises Cancelled when a stop was requested, RuntimeError where a unit could not be measured at all, no
        worker is left or the scheduler is gone.
        """
        waiting = deque(units)
        open_keys = {u.key for u in waiting}
        total = max(total, len(waiting))
        self._progress = progress or self.reporter.progress

        def finish(batch: Sequence[tuple[Unit, Mapping[str, Any]]], worker: Worker) -> None:
            new = [(unit, found) for unit, found in batch if unit.key in open_keys]
            open_keys.difference_update(unit.key for unit, _ in new)
            if new:
                done(new, worker)

        self._give_up = lambda unit, why: (open_keys.discard(unit.key), gave_up(unit, why))
        self._waiting, self._finish = waiting, finish
        try:
            with few_collections():
                while open_keys:
                    self._hand_out(waiting)
                    self._listen()
                    self._look()
                    self._say(total - len(open_keys), total)
            self._say(total - len(open_keys), total, now=True)
        finally:
            for worker in self.workers.values():
                self._drop(worker)

    def end(self) -> None:
        """Have the workers forget the job, and the last facts of them written."""
        for worker in self.workers.values():
            self._drop(worker)
            if worker.asked is not None:
                worker.asked.cancel(force=True)
        self._facts(now=True)
        for topic in ("all", self.order["topic"]):
            self.client.unsubscribe_topic(topic)
        if (addresses := [w.address for w in self.able]) and self._body is at_worker.measure:
            self.client.run(at_worker.forget, workers=addresses, wait=False, on_error="ignore")

    # handing out

    def _hand_out(self, waiting: deque[Unit]) -> None:
        short = bool(self._took) and self._pace <= BATCH_S
        for already in range(2 if short else 1):
            able = self.able
            for place, worker in enumerate(able, 1):
                if waiting and len(worker.batches) == already:
                    seconds = BATCH_S if already else max(BATCH_S * place / len(able), _LEAST_S)
                    count = self._count(waiting, seconds, len(able))
                    self._send(worker, [waiting.popleft() for _ in range(count)], seconds)

    @property
    def _pace(self) -> float:
        """Seconds of a unit, of the last ones."""
        return max(statistics.median(self._took), 1e-6)

    def _count(self, waiting: deque[Unit], seconds: float, workers: int) -> int:
        """How many units a batch of so many seconds has: one that was in a lost worker's hand before goes
        alone."""
        if waiting[0].tries:
            return 1
        if self._took:
            fair = -(-len(waiting) // workers)  # the last batches are short: all end together
            count = max(int(_LEAST_S / self._pace), min(int(seconds / self._pace), fair), 1)
        else:  # several may be too many, which come back, and some of unlike lengths do not end at a time
            count = max(min(len(waiting) // workers, int(_MOST * seconds / BATCH_S)), 1)
        fresh = itertools.takewhile(lambda unit: not unit.tries, itertools.islice(waiting, min(count, _MOST)))
        return sum(1 for _ in fresh)

    def _send(self, worker: Worker, batch: list[Unit], seconds: float) -> None:
        limit = 2 * seconds if self._took else seconds
        for unit in batch:
            unit.tries += 1
        units = [{"key": u.key, "spec": dict(u.spec), "known": u.known} for u in batch]
        lock = (worker.where["device_uuid"] or "cpu") if self.locks else None
        order = self.order | {"units": units, "limit_s": limit, "lock": lock, "where": worker.where}
        worker.batches.append(Batch(self._submit(worker, self._body, order, "done"), batch))

    def _take_back(self, units: Sequence[Unit]) -> None:
        """What a worker did not begin is the next to be sent, to whoever is idle."""
        for unit in units:
            unit.tries -= 1
        self._waiting.extendleft(reversed(units))

    def _drop(self, worker: Worker) -> list[Unit]:
        """Take back what a worker has in hand."""
        batches, worker.batches = worker.batches, []
        for batch in batches:
            batch.task.cancel(force=True)
        return [unit for batch in batches for unit in batch.units]

    def _said(self, about: Mapping[str, Any]) -> None:
        for worker in self.workers.values():
            for batch in worker.batches:
                if batch.task.key == about["task"]:
                    batch.now, batch.text = about["unit"], about["text"]

    def _ended(self, worker: Worker, future, answer: Mapping[str, Any] | None) -> None:
        batch = next((b for b in worker.batches if b.task is future), None)
        if batch is None:
            return  # it was taken back
        if answer is None:
            if is_lost(future):
                return self._lost(worker)
            why = sentence(future)
            self._drop(worker)
            raise RuntimeError(f"{worker.name}: {why}")
        units = {u.key: u for u in batch.units}
        worker.batches.remove(batch)
        future.release()
        self._took.extend(found["seconds"] for found in answer["found"])
        self._take_back(batch.units[len(answer["found"]) :])
        if not answer["error"]:
            self._hand_out(self._waiting)  # before the records are written
        worker.done += len(answer["found"])
        self._finish([(units[found["key"]], found) for found in answer["found"]], worker)
        if answer["error"]:
            raise RuntimeError(f"{worker.name}: {answer['error'].removeprefix('process 1 of 1: ')}")

    def _lost(self, worker: Worker) -> None:
        """What a lost worker had in hand goes back; the unit that it was at has lost a worker."""
        if worker.lost:
            return
        at, running = worker.now, worker.running
        now = running and (running.now or (len(running.units) == 1 and running.units[0].key))
        units = self._drop(worker)
        worker.lost, worker.asked = True, None
        left = []
        for unit in units:
            unit.killed += unit.key == now
            if unit.killed >= _KILLED or unit.tries >= _TRIES:
                why = f"{unit.killed or unit.tries} workers were lost while they measured it"
                self._give_up(unit, f"{why}, the last {worker.name}")
            else:
                left.append(unit)
        what = f" at {at}" if at else ""
        also = f"; {len(left)} of {len(units)} go to other workers" if left else ""
        self.reporter.log(f"{worker.name} was lost{what}{also}")
        self._waiting.extendleft(reversed(left))
        self._facts(now=True)

    def _say(self, done: int, total: int, now: bool = False) -> None:
        if not now and time.monotonic() - self._said_at < _SAY_EVERY_S:
            return
        self._said_at = time.monotonic()
        able = self.able
        eta = statistics.mean(self._took) * (total - done) / len(able) if self._took and able else None
        self._progress(done, total, words(able), eta)
        self._facts()
