"""Units of work shared among the workers of a cluster, by the process that alone writes the run.

Each worker is given one batch at a time: one unit, or as many short ones as take half a second. What a lost
worker had in hand is done elsewhere; a unit to which two workers were lost is given up. What a batch found is
taken once, whatever a lost worker may still send.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fusescope.jobs.cluster import at_worker
from fusescope.jobs.cluster.roster import Roster
from fusescope.jobs.cluster.worker import Unit, Worker, is_lost, sentence, words

BATCH_S = 0.5  # of work that is sent at a time
_MOST = 500  # units in a batch
_KILLED = 2  # workers that one unit may have lost
_TRIES = 8  # times that a unit is sent in all, whatever became of the workers
_SAY_EVERY_S = 0.5
_RECENT = 64


Done = Callable[[Unit, Mapping[str, Any], Worker], None]
GaveUp = Callable[[Unit, str], None]
Progress = Callable[[int, int, str, float | None], None]


class Crew(Roster):
    """The workers of one job, and what they have in hand."""

    def __init__(self, *about, **more):
        self._took: deque[float] = deque(maxlen=_RECENT)  # seconds of the last units
        self._waiting: deque[Unit] = deque()
        self._give_up: GaveUp = lambda unit, why: None
        self._finish: Done = lambda unit, found, worker: None
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
        """Have every unit measured; ``done`` is called with what it found as soon as it is here, ``gave_up``
        with the reason where workers were lost to it. total: of the progress, of which the units are the
        rest; progress: who is told instead of the reporter.

        Raises Cancelled when a stop was requested, RuntimeError where a unit could not be measured at all, no
        worker is left or the scheduler is gone.
        """
        waiting = deque(units)
        open_keys = {u.key for u in waiting}
        total = max(total, len(waiting))
        self._progress = progress or self.reporter.progress

        def finish(unit: Unit, found: Mapping[str, Any], worker: Worker) -> None:
            if unit.key in open_keys:
                open_keys.discard(unit.key)
                done(unit, found, worker)

        self._give_up = lambda unit, why: (open_keys.discard(unit.key), gave_up(unit, why))
        self._waiting, self._finish = waiting, finish
        try:
            while open_keys:
                self._hand_out(waiting)
                self._listen()
                self._look()
                self._say(total - len(open_keys), total)
            self._say(total - len(open_keys), total, now=True)
        finally:
            for worker in self.workers.values():
                if worker.batch:
                    self._drop(worker)

    def end(self) -> None:
        """Have the workers forget the job, and the last facts of them written."""
        for worker in self.workers.values():
            self._drop(worker)
        self._facts(now=True)
        for topic in ("all", self.order["topic"]):
            self.client.unsubscribe_topic(topic)
        if (addresses := [w.address for w in self.able]) and self._body is at_worker.measure:
            self.client.run(at_worker.forget, workers=addresses, wait=False, on_error="ignore")

    # handing out

    def _hand_out(self, waiting: deque[Unit]) -> None:
        for worker in [w for w in self.able if w.task is None]:
            if waiting:
                self._send(worker, [waiting.popleft() for _ in range(self._count(waiting))])

    def _count(self, waiting: deque[Unit]) -> int:
        """How many units the next batch has: one that was in a lost worker's hand before goes alone."""
        if not self._took or waiting[0].tries:
            return 1
        pace = max(statistics.median(self._took), 1e-6)
        fair = -(-len(waiting) // (2 * len(self.able)))  # the last batches are short: all end together
        count = max(int(BATCH_S / 10 / pace), min(int(BATCH_S / pace), fair), 1)
        fresh = itertools.takewhile(lambda unit: not unit.tries, itertools.islice(waiting, min(count, _MOST)))
        return sum(1 for _ in fresh)

    def _send(self, worker: Worker, batch: list[Unit]) -> None:
        for unit in batch:
            unit.tries += 1
        units = [{"key": u.key, "spec": dict(u.spec), "known": u.known} for u in batch]
        lock = (worker.where["device_uuid"] or "cpu") if self.locks else None
        order = self.order | {"units": units, "lock": lock}
        worker.batch, worker.now, worker.text = batch, "", ""
        worker.task = self._submit(worker, self._body, order, "done")

    def _drop(self, worker: Worker) -> list[Unit]:
        """Take back what a worker has in hand."""
        batch, task, worker.batch, worker.task = worker.batch, worker.task, [], None
        worker.now = worker.text = ""
        if task is not None:
            task.cancel(force=True)
        return batch

    def _ended(self, worker: Worker, future) -> None:
        if future is not worker.task:
            return  # it was taken back
        if future.status != "finished":
            if is_lost(future):
                return self._lost(worker)
            why = sentence(future)
            self._drop(worker)
            raise RuntimeError(f"{worker.name}: {why}")
        answer = future.result()
        units = {u.key: u for u in worker.batch}
        worker.batch, worker.task, worker.now, worker.text = [], None, "", ""
        future.release()
        for found in answer["found"]:
            worker.done += 1
            self._took.append(found["seconds"])
            self._finish(units.pop(found["key"]), found, worker)
        if answer["error"]:
            raise RuntimeError(f"{worker.name}: {answer['error'].removeprefix('process 1 of 1: ')}")

    def _lost(self, worker: Worker) -> None:
        """What a lost worker had in hand goes back; the unit that it was at has lost a worker."""
        if worker.lost:
            return
        now = worker.now
        batch = self._drop(worker) if worker.facts else []
        worker.lost, worker.task = True, None
        left = []
        for unit in batch:
            unit.killed += unit.key == now or (not now and len(batch) == 1)
            if unit.killed >= _KILLED or unit.tries >= _TRIES:
                why = f"{unit.killed or unit.tries} workers were lost while they measured it"
                self._give_up(unit, f"{why}, the last {worker.name}")
            else:
                left.append(unit)
        at = next((u.label for u in batch if u.key == now), "")
        what = f" at {at}" if at else ""
        also = f"; {len(left)} of {len(batch)} go to other workers" if left else ""
        self.reporter.log(f"{worker.name} was lost{what}{also}")
        self._waiting.extend(left)
        self._facts(now=True)

    def _say(self, done: int, total: int, now: bool = False) -> None:
        if not now and time.monotonic() - self._said_at < _SAY_EVERY_S:
            return
        self._said_at = time.monotonic()
        able = self.able
        eta = statistics.mean(self._took) * (total - done) / len(able) if self._took and able else None
        self._progress(done, total, words(able), eta)
        self._facts()
