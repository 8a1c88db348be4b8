"""Lines that a worker answers are written as they are, or refused, so that a run stays readable."""

from __future__ import annotations

import dataclasses
import json
import pickle
import socket
import threading

import pytest

from fusescope.core.machine.conditions import Conditions
from fusescope.core.records import Accuracy, Record, Resources, Speedup, Time, Times
from fusescope.core.schema import typed
from fusescope.core.schema.lines import Lines
from fusescope.core.schema.run_files import Samples
from fusescope.jobs.cluster import answers, cases
from fusescope.jobs.process.channel import BodyReporter, Inbox, send
from fusescope.store import folder

WHERE = {"device_name": "a CPU", "device_uuid": None, "host": "here"}
WORKER = type("Worker", (), {"where": WHERE, "name": "worker 1"})
TIME = Time(1.25, 1.0, 1.5, 10, True)
FULL = Record(
    *("add", "eager", {"n": 1, "mask": "a–b"}, "float32", "cpu", "ok"),
    accuracy=Accuracy(1e-7, float("nan"), 1.0, "float64"),
    time_ms=Times(0.5, TIME, graph=TIME),
    speedup=Speedup("graph", 1.5, 1.25, 1.75),
    resources=Resources(32, 1024, 0, 0.5),
    extra={"memory": {"peak": 12}},
    conditions=Conditions(1980.0, 2619.0, ("power cap",), other_cpus=0.25),
)
RECORDS = [
    FULL,
    dataclasses.replace(FULL, impl="cpu", accuracy=Accuracy(1e-7, 1e-6, 1.0, "float64"), conditions=None),
    Record("add", "v1", {"n": 1, "mask": "a–b"}, "float32", "cpu", "crashed", "SIGSEGV \ud800 \n two lines"),
]
SAMPLES = [
    {"case_key": r.case_key, "impl": r.impl, "mode": mode, "milliseconds": [1.0, 0.1, 1e-300], "state": state}
    for r in RECORDS[:2]
    for mode, state in (("eager", None), ("graph", [{"sm_mhz": 1980, "reasons": ["idle"]}] * 40))
]


@pytest.fixture(params=["msgspec", "json"])
def decoder(request, monkeypatch):
    """Both ways to read a line; the second is the only one where msgspec is not installed."""
    if request.param == "json":
        monkeypatch.setattr(answers, "decode", lambda cls, text: None)
    else:
        pytest.importorskip("msgspec", reason="msgspec makes it faster, json does as well")


def answered(records=RECORDS, samples=SAMPLES):
    unit = answers.Measured("unit", records, samples, [], {}, 0.001)
    made = answers.make({"where": WHERE}, [unit])["found"][0]
    return pickle.loads(pickle.dumps(made))  # as Dask carries it


@pytest.mark.usefixtures("decoder")
def test_the_files_are_those_of_records_written_one_by_one(profiles, tmp_path):
    one_by_one, together = (folder.Writer(folder.create("bench", {"op": "add"})) for _ in range(2))
    for line in SAMPLES:
        one_by_one.samples(**line)
    for record in RECORDS:
        conditions = {**(record.to_json().get("conditions") or {}), **WHERE}
        one_by_one.record(Record.from_json({**record.to_json(), "conditions": conditions}))
    ours, its = socket.socketpair()
    book = cases.Bookkeeper(BodyReporter(its, tmp_path, {}))
    body = threading.Thread(target=book.book, args=([(None, answered())], WORKER))
    body.start()
    (message,) = Inbox(ours).wait(60)
    together.book([Lines(*one) for one in message["data"]["found"]])
    send(ours, {"do": "recorded"})
    body.join()
    for name in ("results.jsonl", "samples.jsonl"):
        assert (together.path / name).read_bytes() == (one_by_one.path / name).read_bytes() != b""
    assert together.statuses() == one_by_one.statuses() and len(together.statuses()) == len(RECORDS)
    for writer in (one_by_one, together):
        writer.close()
    assert repr(folder.records(together.path)) == repr(folder.records(one_by_one.path))  # NaN is not NaN


def record(**changed):
    (line, _), *_ = answered(RECORDS[1:2], [])["records"]
    return json.dumps(json.loads(line) | changed)


def sample(**changed):
    ((_, lines),) = answered(RECORDS[1:2], SAMPLES)["records"]
    return json.dumps(json.loads(lines[0]) | changed)


TIMES = {"first": 0.5, "eager": {"median": 1.0, "low": 1.0, "high": 1.0, "n": 1, "converged": True}}
REFUSED = {
    "cut short": ([record()[:-1], []], "delimiter"),
    "in the middle": ([record()[:200], []], "."),
    "two lines": ([record() + "\n" + record(), []], "one line"),
    "a newline within": ([record().replace(",", ",\n", 1), []], "one line"),
    "a return within": ([record().replace(",", ",\r", 1), []], "one line"),
    "more after it": ([record() + record(), []], "Extra data"),
    "bytes": ([record().encode(), []], "no text"),
    "an object": ([json.loads(record()), []], "no text"),
    "not ASCII": ([record(reason="–").encode().decode("unicode_escape"), []], "one line"),
    "empty": (["", []], "."),
    "null": (["null", []], "must be an object"),
    "a list": (["[" + record() + "]", []], "must be an object"),
    "too long": ([record(extra={"x": "x" * answers.LONGEST}), []], "8 Mi"),
    "deep": ([record(extra={"x": json.loads("[" * 99 + "]" * 99)}), []], "nested deeper than 64"),
    "too deep to read": ([record()[:-1] + ',"x":' + "[" * 100_000 + "]" * 100_000 + "}", []], "nested"),
    "no state": ([record(status="fine"), []], "status is one of ok"),
    "ok without a time": ([record(time_ms=None), []], "carries its times"),
    "a latency of nothing": ([record(status="crashed", reason="x"), []], "carries no latency"),
    "no implementation": ([record(impl=None), []], "impl is null"),
    "a number for a name": ([record(op=3), []], "op must be a text"),
    "a time below zero": ([record(time_ms=TIMES | {"first": -1.0}), []], "at least 0"),
    "more than 64 bits": ([record(resources={"registers": 1 << 64}), []], "registers"),
    "a mode that is none": (
        [record(speedup=json.loads(record())["speedup"] | {"of": "fast"}), []],
        "of must",
    ),
    "another device": ([record(conditions=WHERE | {"device_name": "an H200"}), []], "device_name is not"),
    "no device": ([record(conditions=None), []], "device_name is not"),
    "no samples": ([record(), None], "no record with a list"),
    "samples as text": ([record(), sample()], "no record with a list"),
    "no pair": (record(), "no record with a list"),
    "samples cut short": ([record(), [sample(), sample()[:-3]]], "."),
    "samples of another case": ([record(), [sample(case_key="x")]], "another record"),
    "samples of another implementation": ([record(), [sample(impl="x")]], "another record"),
    "samples of no mode": ([record(), [sample(mode="fast")]], "samples are of eager"),
    "samples that are none": ([record(), [sample(ms=["fast"])]], "ms must be a list of numbers"),
}


@pytest.mark.usefixtures("decoder")
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_record_is_refused_and_nothing_of_its_batch_written(reporter, name):
    answer, why = REFUSED[name]
    good, bad = answered(RECORDS[:1], []), answered([], []) | {"records": [answer]}
    with pytest.raises(
        RuntimeError, match=f"(?s)^worker 1 sent a line that is not written: .*{why}"
    ) as error:
        cases.Bookkeeper(reporter).book([(None, good), (None, bad)], WORKER)
    assert not reporter.records and not reporter.raw and len(str(error.value)) < 400


def test_the_examples_are_refused_for_what_was_changed(reporter):
    good = answered([], []) | {"records": [[record(), [sample()]]]}
    assert len(cases.Bookkeeper(reporter).book([(None, good)], WORKER)) == len(reporter.raw) == 1


ODD = (
    None,
    True,
    0,
    1,
    -1,
    0.0,
    -0.5,
    1e300,
    1 << 63,
    1 << 64,
    float("nan"),
    float("inf"),
    "",
    "eager",
    "ok",
)
ODD += ([], [1], [1.5], ["a"], {}, {"a": 1}, TIMES, "\ud800", "–")


def changes(value):
    """The JSON value with each of its parts replaced by each odd one, or left out."""
    yield from ODD
    for key in value if isinstance(value, dict) else ():
        yield {k: v for k, v in value.items() if k != key}
        yield from ({**value, key: changed} for changed in changes(value[key]))


@pytest.mark.parametrize("cls, line", [(Record, record()), (Samples, sample())])
def test_a_line_read_fast_is_read_as_by_build(cls, line):
    pytest.importorskip("msgspec", reason="without it nothing is read fast")
    fast = slow = 0
    for data in changes(json.loads(line)):
        text = json.dumps(data)
        made = typed.decode(cls, text)
        if made is None:
            slow += 1
        else:
            fast += 1
            assert repr(made) == repr(typed.build(cls, json.loads(text))), text
    assert fast > 20 and slow > 20
