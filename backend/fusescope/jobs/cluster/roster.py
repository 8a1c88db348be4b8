"""The workers of a cluster as one job sees them: who comes, who they are, who can measure it, who goes."""

from __future__ import annotations

import itertools
import queue
import time
from collections.abc import Callable, Mapping
from typing import Any

import fusescope
from fusescope.core.reporter import Reporter
from fusescope.jobs.cluster import at_worker
from fusescope.jobs.cluster.deploy import hopeless, mend
from fusescope.jobs.cluster.worker import Call, Worker, is_lost, perform, result, sentence

_TICK_S = 0.2
_MEND_EVERY_S = 10.0
_LOOK_EVERY_S = 1.0
_PATIENCE_S = 180.0  # without any worker before the job gives up
_numbers = itertools.count()  # of tasks: Dask gives a key that it knows the result that it has


class Roster:
    """The workers of one job. order: {"run", "kind", "device"}; locks: whether workers take their device's
    lock; body: what a worker does with an order; alike: whether all must have one kind of device."""

    def __init__(
        self,
        client,
        order: Mapping[str, Any],
        reporter: Reporter,
        locks: bool,
        body: Callable[[dict], dict] = at_worker.measure,
        describe: Callable[[str], dict] = at_worker.describe,
        patience_s: float = _PATIENCE_S,
        alike: bool = False,
    ):
        self.client, self.order, self.reporter, self.locks = client, dict(order), reporter, locks
        self._body, self._describe, self._patience_s = body, describe, patience_s
        self.workers: dict[str, Worker] = {}
        self._heard: queue.SimpleQueue = queue.SimpleQueue()
        self._shown, self._alike = None, alike
        self._mended_at = self._looked_at = time.monotonic()
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
        while not self.able or self._asked:
            self._listen()
            self._look()
        return self.able

    @property
    def _asked(self) -> bool:
        """Whether a worker has not yet said who it is."""
        return any(w.facts is None and not w.lost and not w.refused for w in self.workers.values())

    def _ended(self, worker: Worker, future, answer: Any) -> None:
        """A batch has ended."""

    def _said(self, about: Mapping[str, Any]) -> None:
        """A worker says what it does."""

    def _lost(self, worker: Worker) -> None:
        """A worker is gone."""
        worker.lost, worker.asked = True, None

    def _submit(self, worker: Worker, function, argument, word: str):
        """Run a function on this very worker; ``word`` is heard with the future when it has ended, and what
        it gave, None where it gave nothing."""
        key = f"fusescope-{self.order['run']}-{self.client.id}-{next(_numbers)}"
        where = {"workers": [worker.address], "allow_other_workers": False}
        task = self.client.submit(perform, Call(function, argument), key=key, pure=False, **where)
        # fetched here, in a thread of Dask's: this one hears of it if the worker is lost meanwhile
        task.add_done_callback(lambda future: self._heard.put((word, (worker, future, result(future)))))
        return task

    # listening

    def _listen(self) -> None:
        """Take in all that was heard, waiting a moment for the first."""
        try:
            word, about = self._heard.get(timeout=_TICK_S)
            while True:
                self._take(word, about)
                word, about = self._heard.get_nowait()
        except queue.Empty:
            return

    def _take(self, word: str, about: Any) -> None:
        if word == "done":
            self._ended(*about)
        elif word == "who":
            self._introduced(*about)
        elif word == "said":
            self._said(about)
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
        worker.asked = self._submit(worker, self._describe, self.order["device"], "who")

    def _introduced(self, worker: Worker, future, facts: Any) -> None:
        if future is not worker.asked or worker.lost:
            return
        worker.asked = None
        if facts is None and is_lost(future):
            return self._lost(worker)
        if facts is None:
            worker.refused = True
            self.why_refused = f"{worker.name} is left out: {sentence(future)}"
        else:
            worker.facts = facts
            named = self.client.scheduler_info()["workers"].get(worker.address) or {}
            worker.name = str(named.get("name") or worker.name)
            if worker.facts["version"] != fusescope.__version__:
                worker.refused = True
                mine = fusescope.__version__
                theirs = f"{worker.name} has FuseScope {worker.facts['version']}"
                self.why_refused = f"{theirs}, this is {mine}: install one version everywhere"
            elif self._alike and (other := {w.where["device_name"] for w in self.able if w is not worker}):
                self._compare(worker, other.pop())
        if worker.refused:
            self.reporter.log(self.why_refused)
        self._facts(now=True)

    def _compare(self, worker: Worker, other: str) -> None:
        """Refuse a worker whose device is of another kind than those that measure already."""
        if worker.where["device_name"] != other:
            worker.refused = True
            mine = f"{worker.name} has {worker.where['device_name']}"
            self.why_refused = f"{mine}, and schemes are compared on one kind of device, {other}"

    # looking around

    def _look(self) -> None:
        self.reporter.check()
        if self.client.status not in ("running", "connecting"):
            raise RuntimeError(
                "the scheduler of the cluster is gone; resume the run to measure what is missing"
            )
        if time.monotonic() - self._mended_at > _MEND_EVERY_S:
            self._mended_at = time.monotonic()
            mend(self.client)
            if not self.workers and (why := hopeless(self.client)):
                raise RuntimeError(why)
        if time.monotonic() - self._looked_at > _LOOK_EVERY_S:
            self._looked_at = time.monotonic()
            for address in self.client.scheduler_info()["workers"].keys() - self.workers.keys():
                self._added(address)  # whose event was not heard
        if self.able:
            self._alone_since = None
        else:
            self._alone_since = self._alone_since or time.monotonic()
            alone = time.monotonic() - self._alone_since
            if self.why_refused and not self._asked and alone > 1:
                raise RuntimeError(f"no worker of the cluster can measure this: {self.why_refused}")
            if alone > self._patience_s:
                raise RuntimeError(
                    f"the cluster has had no worker for {self._patience_s:g} s; start one with fusescope "
                    "cluster worker ADDRESS, and resume the run"
                )

    def _facts(self, now: bool = False) -> None:
        """The workers into the run's environment, where something changed."""
        lines = [w.line() for w in self.workers.values() if w.facts]
        if lines != self._shown and (now or lines):
            self._shown = lines
            self.reporter.environment(workers=lines)
