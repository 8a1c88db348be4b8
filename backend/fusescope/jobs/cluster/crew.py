"""Units of work shared among the workers of a cluster, by the process that alone writes the run.

Each worker is given one batch at a time: one unit, or as many short ones as take half a second. What a lost
worker had in hand is done elsewhere; a unit to which two workers were lost is given up. What a batch found is
taken once, whatever a lost worker may still send.
"""

from __future__ import annotations

import itertools
import queue
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import fusescope
from fusescope.core.reporter import Reporter
from fusescope.jobs.cluster import at_worker
from fusescope.jobs.cluster.worker import Unit, Worker

BATCH_S = 0.5  # of work that is sent at a time
_MOST = 500  # units in a batch
_KILLED = 2  # workers that one unit may have lost
_TRIES = 8  # times that a unit is sent in all, whatever became of the workers
_TICK_S = 0.2
_SAY_EVERY_S = 0.5
_PATIENCE_S = 60.0  # without any worker before the job gives up
_NAMED = 4  # workers that the line of progress names


Done = Callable[[Unit, Mapping[str, Any], Worker], None]
GaveUp = Callable[[Unit, str], None]


class Crew:
    """The workers of one job. order: {"run", "kind", "device"}; locks: whether workers take their device's
    lock; body: what a worker does with an order."""

    def __init__(
        self,
        client,
        order: Mapping[str, Any],
        reporter: Reporter,
        locks: bool,
        body: Callable[[dict], dict] = at_worker.measure,
        describe: Callable[[str], dict] = at_worker.describe,
        patience_s: float = _PATIENCE_S,
    ):
        self.client, self.order, self.reporter, self.locks = client, dict(order), reporter, locks
        self._body, self._describe, self._patience_s = body, describe, patience_s
        self.workers: dict[str, Worker] = {}
        self._heard: queue.SimpleQueue = queue.SimpleQueue()
        self._numbers, self._said_at, self._shown = itertools.count(), 0.0, None
        self._pace: float | None = None  # seconds a unit took, the last weighing most
        self._alone_since: float | None = time.monotonic()
        self.why_refused = ""
        self.order["topic"] = f"fusescope-{self.order['run']}-{client.id}"
        client.subscribe_topic("all", lambda event: self._heard.put(("cluster", event[1])))
        client.subscribe_topic(self.order["topic"], lambda event: self._heard.put(("said", event[1])))
        for address, facts in client.scheduler_info()["workers"].items():
            self._added(address, str(facts.get("name") or address))

    @property
    def able(self) -> list[Worker]:
        """The workers that are there and can measure this job."""
        return [w for w in self.workers.values() if w.facts and not w.lost and not w.refused]

    def wait(self) -> list[Worker]:
        """The able workers, once there is one and every worker that is there now has said who it is."""
        while not self.able or any(w.facts is None and not w.lost for w in self.workers.values()):
            self._listen(lambda *_: None)
            self._look()
        return self.able

    def share(self, units: Iterable[Unit], done: Done, gave_up: GaveUp, total: int = 0) -> None:
        """Have every unit measured; ``done`` is called with what it found as soon as it is here, ``gave_up``
        with the reason where workers were lost to it. total: of the progress, of which the units are the
        rest.

        Raises Cancelled when a stop was requested, RuntimeError where a unit could not be measured at all, no
        worker is left or the scheduler is gone.
        """
        waiting = deque(units)
        open_keys = {u.key for u in waiting}
        total = max(total, len(waiting))

        def finish(unit: Unit, found: Mapping[str, Any], worker: Worker) -> None:
            if unit.key in open_keys:
                open_keys.discard(unit.key)
                done(unit, found, worker)

        self._give_up = lambda unit, why: (open_keys.discard(unit.key), gave_up(unit, why))
        self._waiting = waiting
        try:
            while open_keys:
                self._hand_out(waiting)
                self._listen(finish)
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
        self._facts(now=True)
        if (addresses := [w.address for w in self.able]) and self._body is at_worker.measure:
            self.client.run(at_worker.forget, workers=addresses, wait=False, on_error="ignore")

    # handing out

    def _hand_out(self, waiting: deque[Unit]) -> None:
        free = [w for w in self.able if w.task is None]
        for worker in free:
            count = 1 if not self._pace else int(BATCH_S / self._pace)
            fair = -(-len(waiting) // (2 * len(self.able)))  # the last batches are short: all end together
            batch = [waiting.popleft() for _ in range(min(len(waiting), max(1, min(count, fair, _MOST))))]
            if batch:
                self._send(worker, batch)

    def _send(self, worker: Worker, batch: list[Unit]) -> None:
        for unit in batch:
            unit.tries += 1
        units = [{"key": u.key, "spec": dict(u.spec), "known": u.known} for u in batch]
        lock = (worker.where["device_uuid"] or "cpu") if self.locks else None
        order = self.order | {"units": units, "lock": lock}
        worker.batch, worker.now, worker.text = batch, "", ""
        worker.task = self._submit(worker, self._body, order, "done")

    def _submit(self, worker: Worker, function, argument, word: str):
        """Run a function on this very worker; ``word`` is heard with the future when it has ended."""
        key = f"fusescope-{self.order['run']}-{self.client.id}-{next(self._numbers)}"
        task = self.client.submit(
            function, argument, key=key, workers=[worker.address], allow_other_workers=False, pure=False
        )
        task.add_done_callback(lambda future: self._heard.put((word, (worker, future))))
        return task

    def _drop(self, worker: Worker) -> list[Unit]:
        """Take back what a worker has in hand."""
        batch, task, worker.batch, worker.task = worker.batch, worker.task, [], None
        worker.now = worker.text = ""
        if task is not None:
            task.cancel(force=True)
        return batch

    # listening

    def _listen(self, finish: Done) -> None:
        """Take in all that was heard, waiting a moment for the first."""
        try:
            word, about = self._heard.get(timeout=_TICK_S)
            while True:
                self._take(word, about, finish)
                word, about = self._heard.get_nowait()
        except queue.Empty:
            return

    def _take(self, word: str, about: Any, finish: Done) -> None:
        if word == "done":
            self._ended(*about, finish)
        elif word == "who":
            self._introduced(*about)
        elif word == "said":
            worker = next((w for w in self.workers.values() if w.task and w.task.key == about["task"]), None)
            if worker:
                worker.now, worker.text = about["unit"], about["text"]
        elif about.get("action") == "add-worker":
            self._added(about["worker"])
        elif about.get("action") == "remove-worker" and about["worker"] in self.workers:
            self._lost(self.workers[about["worker"]])

    def _added(self, address: str, name: str = "") -> None:
        """A worker that is new, or came back."""
        before = self.workers.get(address)
        if before and not before.lost:
            return
        worker = self.workers[address] = Worker(address, name or f"worker at {address}")
        worker.task = self._submit(worker, self._describe, self.order["device"], "who")

    def _introduced(self, worker: Worker, future) -> None:
        if future is not worker.task or worker.lost:
            return
        worker.task = None
        if future.status != "finished":
            worker.refused = True
            self.why_refused = f"{worker.name} is left out: {_sentence(future)}"
        else:
            worker.facts = future.result()
            named = self.client.scheduler_info()["workers"].get(worker.address) or {}
            worker.name = str(named.get("name") or worker.name)
            if worker.facts["version"] != fusescope.__version__:
                worker.refused = True
                mine = fusescope.__version__
                theirs = f"{worker.name} has FuseScope {worker.facts['version']}"
                self.why_refused = f"{theirs}, this is {mine}: install one version everywhere"
        if worker.refused:
            self.reporter.log(self.why_refused)
        self._facts(now=True)

    def _ended(self, worker: Worker, future, finish: Done) -> None:
        if future is not worker.task:
            return  # it was taken back
        if future.status != "finished":
            if _is_lost(future):
                return self._lost(worker)
            self._drop(worker)
            raise RuntimeError(f"{worker.name}: {_sentence(future)}")
        answer = future.result()
        units = {u.key: u for u in worker.batch}
        worker.batch, worker.task, worker.now, worker.text = [], None, "", ""
        future.release()
        for found in answer["found"]:
            worker.done += 1
            seconds = found["seconds"]
            self._pace = seconds if self._pace is None else 0.7 * self._pace + 0.3 * seconds
            finish(units.pop(found["key"]), found, worker)
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
        if batch:
            at = next((u.label for u in batch if u.key == now), "")
            what = f" at {at}" if at else ""
            also = f"; {len(left)} of {len(batch)} go to other workers" if left else ""
            self.reporter.log(f"{worker.name} was lost{what}{also}")
            self._waiting.extend(left)
        self._facts(now=True)

    # looking around

    def _look(self) -> None:
        self.reporter.check()
        if self.client.status not in ("running", "connecting"):
            raise RuntimeError(
                "the scheduler of the cluster is gone; resume the run to measure what is missing"
            )
        asked = any(w.facts is None and not w.lost and not w.refused for w in self.workers.values())
        if self.able:
            self._alone_since = None
        else:
            self._alone_since = self._alone_since or time.monotonic()
            alone = time.monotonic() - self._alone_since
            if self.why_refused and not asked and alone > 1:
                raise RuntimeError(f"no worker of the cluster can measure this: {self.why_refused}")
            if alone > self._patience_s:
                raise RuntimeError(
                    f"the cluster has had no worker for {self._patience_s:g} s; start one with fusescope "
                    "cluster worker ADDRESS, and resume the run"
                )

    def _say(self, done: int, total: int, now: bool = False) -> None:
        if not now and time.monotonic() - self._said_at < _SAY_EVERY_S:
            return
        self._said_at = time.monotonic()
        able = self.able
        eta = self._pace * (total - done) / len(able) if self._pace and able else None
        count = f"{len(able)} worker{'' if len(able) == 1 else 's'}"
        busy = [f"{w.name} {w.line()['now']}" for w in able if w.now][:_NAMED] if len(able) <= _NAMED else []
        text = (
            f"{count}: {'; '.join(busy)}" if busy else f"{count} at work" if able else "waiting for a worker"
        )
        self.reporter.progress(done, total, text, eta)
        self._facts()

    def _facts(self, now: bool = False) -> None:
        """The workers into the run's environment, where something changed."""
        lines = [w.line() for w in self.workers.values() if w.facts]
        if lines != self._shown and (now or lines):
            self._shown = lines
            self.reporter.environment(workers=lines)


def _sentence(future) -> str:
    e = future.exception()
    return " ".join(str(e).split()) or type(e).__name__ if e else future.status


def _is_lost(future) -> bool:
    """Whether the task ended with its worker, and not by itself."""
    if future.status in ("cancelled", "lost"):
        return True
    return type(future.exception()).__name__ in ("KilledWorker", "Cancelled", "CommClosedError")
