"""Units shared among workers, with simulated bodies: each is measured once, whatever becomes of workers."""

from __future__ import annotations

import gc
import itertools
import json
import os
import signal
import socket
import threading
from collections import deque

import bodies
import pytest

from fusescope.core.errors import Cancelled
from fusescope.core.records import Record, Time, Times, case_key
from fusescope.jobs.cluster import answers, cases
from fusescope.jobs.cluster.crew import Crew
from fusescope.jobs.cluster.worker import Call, Unit, Worker, perform
from fusescope.jobs.process.channel import BodyReporter, Inbox, send

SCHEDULING_MS = 50.0


SIMULATED = {"body": bodies.simulate, "describe": bodies.who}


def crew_of(client, reporter, device="cpu", **more):
    order = {"run": "test", "kind": "bench", "device": device}
    return Crew(client, order, reporter, False, **(SIMULATED | more))


def unit(n, ms=1.0, **more):
    return Unit(f"unit {n}", {"n": n, "ms": ms} | more, label=f"case {n}")


def share(client, reporter, units, **more):
    """What is left of sharing: (crew, {key: reason} of what was given up)."""
    crew, gave_up = crew_of(client, reporter, **more), {}
    crew.wait()
    try:
        crew.share(units, cases.Bookkeeper(reporter).book, lambda u, why: gave_up.update({u.key: why}))
    finally:
        crew.end()
    return crew, gave_up


def measured(reporter):
    return sorted(r.case["n"] for r in reporter.records)


@pytest.mark.sample(1)
@pytest.mark.slow
@pytest.mark.parametrize("count", [0, 1, 3, 500])
def test_each_unit_once(client, reporter, count):
    _, gave_up = share(client, reporter, [unit(n) for n in range(count)])
    assert measured(reporter) == list(range(count)) and not gave_up
    assert [line[:2] for line in reporter.raw] == [(r.case_key, "eager") for r in reporter.records]
    assert not count or reporter.steps[-1][:2] == (count, count)


def test_records_name_the_device_and_the_run_its_workers(client, reporter):
    crew, _ = share(client, reporter, [unit(n, ms=50) for n in range(8)])
    assert {(r.conditions.device_name, r.conditions.host) for r in reporter.records} == {("a CPU", "host")}
    workers = reporter.facts["workers"]
    assert sum(w["done"] for w in workers) == 8 and all(w["now"] is None for w in workers)
    assert {w["name"] for w in workers} == {w.name for w in crew.workers.values()}


@pytest.mark.long
def test_a_killed_worker_loses_nothing_and_repeats_no_record(client, reporter, tmp_path):
    """One worker is killed when ten are done. (A second kill may find the same unit in hand, which is then
    given up, as it shall be.)"""
    pids = set()

    class Killing(type(reporter)):
        def record(self, record):
            super().record(record)
            if len(self.records) == 10:
                pids.add(crew.able[0].facts["pid"])
                os.kill(crew.able[0].facts["pid"], signal.SIGKILL)

    reporter = Killing()
    crew = crew_of(client, reporter)
    crew.wait()
    gave_up = []
    units = [unit(n, ms=60, ledger=str(tmp_path / "ledger")) for n in range(30)]
    crew.share(units, cases.Bookkeeper(reporter).book, lambda *about: gave_up.append(about))
    crew.end()
    assert not gave_up and measured(reporter) == list(range(30)) and len(pids) == 1
    assert sum("was lost" in line for line in reporter.lines) == 1


@pytest.mark.slow
def test_a_unit_that_kills_two_workers_is_given_up(client, reporter):
    units = [unit(n, ms=20) for n in range(6)]
    units[2].spec["kill"] = True
    _, gave_up = share(client, reporter, units)
    assert list(gave_up) == ["unit 2"] and "2 workers were lost" in gave_up["unit 2"]
    assert measured(reporter) == [0, 1, 3, 4, 5]


def test_a_crashed_case_has_a_record_for_each_implementation(reporter):
    case = {"op": "add", "impls": ["a", "b"], "cases": [{"n": 1}], "dtype": "float32", "device": "cpu"}
    (one,) = cases.units(case | {"cluster": "local"}, {})
    cases.crashed(one, "2 workers were lost while they measured it", reporter)
    assert [(r.impl, r.status) for r in reporter.records] == [("a", "crashed"), ("b", "crashed")]


def test_what_has_its_records_is_not_sent(reporter):
    spec = {"op": "add", "impls": ["a", "b"], "dtype": "float32", "device": "cpu", "cluster": "local:2"}
    spec["cases"] = [{"n": n} for n in (1, 2, 3)]
    keys = [case_key("add", case, "float32", "cpu") for case in spec["cases"]]
    statuses = {(keys[0], "a"): "ok", (keys[0], "b"): "ok", (keys[1], "b"): "wrong"}
    units = cases.units(spec, statuses)
    assert [u.key for u in units] == [keys[2], keys[1]], "the largest first"
    assert units[1].known == [[keys[1], "b", "wrong"]] and units[1].label == "case 2 of 3"
    assert units[1].spec["cases"] == [{"n": 2}] and units[1].spec["cluster"] is None


@pytest.mark.slow
def test_a_stop_ends_what_runs(client, reporter):
    reporter.stop_after = 3
    crew = crew_of(client, reporter)
    crew.wait()
    with pytest.raises(Cancelled):
        crew.share([unit(n, ms=20) for n in range(200)], cases.Bookkeeper(reporter).book, lambda *_: None)
    crew.end()
    assert 3 <= len(reporter.records) < 200 and all(not w.batches for w in crew.workers.values())


@pytest.mark.slow
@pytest.mark.parametrize(
    "how, sentence",
    [
        ({"fail": "no such operator"}, "no such operator"),
        ({"raise": "odd"}, "odd"),
        ({"instead": '{"op":"add","impl":'}, "sent a line that is not written: "),
    ],
)
def test_what_cannot_be_measured_ends_the_job_with_its_sentence(client, reporter, how, sentence):
    with pytest.raises(RuntimeError, match=rf"^worker \d:? {sentence}"):
        share(client, reporter, [unit(0), unit(1, **how)])


@pytest.mark.slow
def test_a_worker_without_the_device_is_refused_with_its_sentence(client, reporter):
    crew = crew_of(client, reporter, device="cuda:0")
    with pytest.raises(RuntimeError, match=r"no worker of the cluster can measure this: worker .*'cuda:0'"):
        crew.wait()


@pytest.mark.slow
def test_another_version_is_refused(client, reporter, monkeypatch):
    monkeypatch.setattr("fusescope.__version__", "0.0.1")
    with pytest.raises(RuntimeError, match=r"has FuseScope .*, this is 0\.0\.1"):
        crew_of(client, reporter).wait()


def test_unlike_devices_are_said(reporter):
    book = cases.Bookkeeper(reporter)
    for name in ("H100", "H200", "H100"):
        worker = type("W", (), {"where": {"device_name": name}, "name": "w"})
        book.book([(unit(0), {"environment": {}, "log": [], "records": []})], worker)
    assert reporter.lines == [
        "the workers have unlike devices (H100, H200): compare cases of one device only"
    ]


@pytest.mark.long
@pytest.mark.parametrize("ms, waiting", [(1.0, 1), (600.0, 0)])
def test_a_worker_of_short_units_has_the_next_batch_waiting(client, reporter, ms, waiting):
    """Long units wait here instead: another worker may be free sooner."""
    in_hand = []

    class Watched(Crew):
        def _ended(self, worker, future, answer):
            if self._waiting:
                in_hand.append(len(worker.batches) - 1)
            super()._ended(worker, future, answer)

    crew = Watched(client, {"run": "t", "kind": "bench", "device": "cpu"}, reporter, False, **SIMULATED)
    crew.wait()
    count = 2000 if ms < 10 else 5  # of fewer none may be left once both workers have two batches
    crew.share([unit(n, ms=ms) for n in range(count)], cases.Bookkeeper(reporter).book, lambda *_: None)
    crew.end()
    assert measured(reporter) == list(range(count))
    later = in_hand[len(crew.workers) :]  # once it is known how long a unit takes
    assert later and set(later) == {waiting} if ms < 10 else set(in_hand) == {waiting}


def test_idle_workers_do_not_end_at_a_time():
    """Their batches of short units have different lengths, the next ones the same; the last are short."""
    sent = {}

    class Sending(Crew):
        def __init__(self):
            self.workers = {f"w{n}": Worker(f"w{n}", f"w{n}", facts={"pid": n}) for n in range(4)}
            self._took = deque([0.002])

        def _send(self, worker, batch, seconds):
            sent.setdefault(worker.name, []).append(len(batch))
            worker.batches.append(batch)

    crew, units = Sending(), deque(unit(n) for n in range(4000))
    crew._hand_out(units)
    assert [first for first, _ in sent.values()] == [62, 125, 187, 250]
    assert {second for _, second in sent.values()} == {250}
    few = deque(itertools.islice(units, 100))
    crew.workers["w0"].batches.pop()
    crew._hand_out(few)
    assert sent["w0"][2:] == [25] and len(few) == 75


def test_a_worker_gives_back_what_it_has_not_begun(client, reporter):
    """How long units take is not known before: the first batches are as large as for the shortest."""
    sent = []

    class Sending(Crew):
        def _send(self, worker, batch, seconds):
            super()._send(worker, batch, seconds)
            sent.append((len(batch), {one.tries for one in batch}))

    crew = Sending(client, {"run": "t", "kind": "bench", "device": "cpu"}, reporter, False, **SIMULATED)
    crew.wait()
    crew.share([unit(n, ms=700.0) for n in range(8)], cases.Bookkeeper(reporter).book, lambda *_: None)
    crew.end()
    assert measured(reporter) == list(range(8))
    assert sent[0][0] > 1 and {count for count, _ in sent[len(crew.workers) :]} == {1}
    assert sum(count for count, _ in sent) > 8, "some were sent again"
    assert all(tries == {1} for _, tries in sent)


def test_scheduling_costs_little(client, reporter):
    """Of the submitting process: what one short unit costs in CPU time, wherever the workers wait."""
    import time

    begun = time.process_time()
    share(client, reporter, [unit(n, ms=0) for n in range(1000)])
    assert (time.process_time() - begun) * 1e3 / 1000 < SCHEDULING_MS


def test_a_batch_is_booked_in_one_message(tmp_path):
    """A message and an answer per record were half of what a short unit cost the submitter."""
    ours, its = socket.socketpair()
    where = {"device_name": "a CPU", "host": "here"}
    worker, batch = type("W", (), {"where": where, "name": "w"}), []
    for n in range(3):
        times = Times(eager=Time(1.0, 1.0, 1.0, 10, True))
        record = Record("add", "eager", {"n": n}, "float32", "cpu", "ok", time_ms=times)
        line = {"case_key": record.case_key, "impl": "eager", "mode": "eager", "milliseconds": [1.0]}
        measured = answers.Measured(f"unit {n}", [record], [line], [], {}, 0.001)
        batch.append((unit(n), answers.make({"where": where}, [measured])["found"][0]))
    body = threading.Thread(
        target=cases.Bookkeeper(BodyReporter(its, tmp_path, {})).book, args=(batch, worker)
    )
    body.start()
    (message,) = Inbox(ours).wait(10)
    send(ours, {"do": "recorded"})
    body.join(10)
    assert message["do"] == "book" and not body.is_alive()
    said = [
        (json.loads(record)["case"]["n"], len(samples)) for *_, record, samples in message["data"]["found"]
    ]
    assert said == [(0, 1), (1, 1), (2, 1)]


def test_collections_of_garbage_are_few_while_units_are_at_work():
    def now():
        return gc.get_freeze_count() > 0, gc.get_threshold()

    before = now()
    frozen, (young, *older) = perform(Call(lambda _: now(), None))
    assert frozen and young > before[1][0] and tuple(older) == before[1][1:]
    with pytest.raises(KeyError):
        perform(Call({}.__getitem__, 0))
    assert now() == before
