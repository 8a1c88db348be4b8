"""Traverses and searches shared among workers: each scheme once, the strategy asked as before, final figures
from one worker."""

from __future__ import annotations

import dataclasses
import json

import pytest

from fusescope.core.records import Record, Speedup, Time, Times
from fusescope.core.reporter import Collect
from fusescope.jobs import submit
from fusescope.jobs.cluster import answers, schemes
from fusescope.search.scheme.setting import OP, of_spec

LAYER = {"batch": 1, "seq": 16, "heads": 2, "head_dim": 32, "dtype": "float32", "compiler": "none"}


class Worker:
    """One that measures nothing: where it is."""

    name, facts = "worker 1", {}
    where = {"device_name": "a CPU", "device_uuid": None, "host": "here"}  # noqa: RUF012


class Crew:
    """Answers each unit with a fixed time by code; ``lost``: codes whose units lose their workers."""

    def __init__(self, workers=2, lost=()):
        self.able, self.lost, self.units = [Worker()] * workers, set(lost), []

    def share(self, units, done, gave_up, total=0, progress=None):
        for number, unit in enumerate(units, 1):
            self.units.append(unit)
            work, environment = unit.spec["work"], {}
            names = [*work.get("codes", ()), *(["unfused", "compile"] if "baselines" in work else ())]
            if self.lost & set(names):
                gave_up(unit, "2 workers were lost while they measured it")
                continue
            if "final" in work:
                pair = dataclasses.asdict(Speedup("eager", 2.0, 1.9, 2.1))
                one = {"ms": 0.5, "speedups": {"unfused": pair}}
                environment = {"final": {work["final"][0]: one}}
            records = [record(unit.spec, name) for name in names]
            measured = answers.Measured(unit.key, records, [], [], environment, 0.001)
            answer = answers.make({"where": Worker.where}, [measured])
            done([(unit, answer["found"][0])], self.able[0])
            progress(number, len(units), "at work", 1.0)


def record(spec, name):
    setting = of_spec(spec)
    ms = 1.0 + int(name, 2) / 65536 if set(name) <= {"0", "1"} else 2.0
    times = Times(eager=Time(ms, ms, ms, 10, True))
    return Record(OP, name, setting.case(), setting.dtype, setting.device, "ok", time_ms=times)


def spec(kind, **more):
    return submit.validate(kind, LAYER | {"cluster": "local:2", "ranges": [[0, 4095]]} | more)


def codes(reporter):
    return [r.impl for r in reporter.records if set(r.impl) <= {"0", "1"}]


def test_a_traverse_measures_each_scheme_once(tmp_path):
    reporter, crew, whole = Collect(tmp_path), Crew(), spec("traverse", limit=20)
    schemes.traverse(whole, crew, reporter)
    assert len(codes(reporter)) == len(set(codes(reporter))) == 20
    assert [list(u.spec["work"]) for u in crew.units[:2]] == [["baselines"], ["segments"]]
    assert [len(u.spec["work"]["codes"]) for u in crew.units[2:]] == [8, 8, 4]
    assert all("cluster" not in u.spec for u in crew.units), "a worker measures by itself"
    assert {r.conditions.host for r in reporter.records} == {"here"}
    assert reporter.steps[-1][:2] == (20, 20)
    again = Crew()
    schemes.traverse(whole, again, reporter)
    assert len(codes(reporter)) == 20 and [list(u.spec["work"]) for u in again.units] == [["baselines"]]


def test_a_lost_unit_is_a_record_of_each_of_its_schemes(tmp_path):
    reporter, first = Collect(tmp_path), Crew()
    whole = spec("traverse", limit=16, segments=False)
    schemes.traverse(whole, first, Collect(tmp_path))
    group = first.units[1].spec["work"]["codes"]
    schemes.traverse(whole, Crew(lost=group[:1]), reporter)
    assert [r.impl for r in reporter.records if r.status == "crashed"] == group
    with pytest.raises(RuntimeError, match="the baselines: 2 workers were lost"):
        schemes.traverse(whole, Crew(lost=["unfused"]), Collect(tmp_path))


@pytest.mark.parametrize("workers, at_once", [(2, 8), (12, 12)])
def test_a_search_asks_for_as_many_as_there_are_workers(tmp_path, workers, at_once):
    reporter, crew = Collect(tmp_path), Crew(workers)
    whole = spec("search", strategy="random", evaluations=24)
    schemes.search(whole, crew, reporter)
    said = json.loads((tmp_path / "search.json").read_text())
    assert said["asked"] == [at_once] * (24 // at_once) and len(said["history"]) == 24
    assert said["result"]["ms"] == 0.5 and said["result"]["speedups"]["unfused"]["median"] == 2.0
    sizes = [len(u.spec["work"]["codes"]) for u in crew.units if "codes" in u.spec["work"]]
    assert max(sizes) == -(-at_once // workers), "in equal shares"
    assert "final" not in reporter.facts


def test_a_resumed_search_asks_as_before_whatever_workers_there_are(tmp_path, monkeypatch):
    whole = spec("search", strategy="random", evaluations=24)
    first = Collect(tmp_path)
    schemes.search(whole, Crew(12), first)
    steps = json.loads((tmp_path / "search.json").read_text())["history"]
    kept = Collect(tmp_path)
    kept.records = first.records[:-3]
    monkeypatch.setattr("fusescope.search.sweeps.search_job._recorded", lambda reporter: kept.records)
    crew = Crew(2)
    schemes.search(whole, crew, kept)
    found = json.loads((tmp_path / "search.json").read_text())
    assert found["asked"] == [12, 12] and [s["code"] for s in found["history"]] == [s["code"] for s in steps]
    sent = [c for u in crew.units for c in u.spec["work"].get("codes", ())]
    assert sorted(sent) == sorted(r.impl for r in first.records[-3:])


def test_a_replay_takes_no_cluster():
    with pytest.raises(ValueError, match="takes no cluster"):
        submit.validate("search", LAYER | {"replay": "some-run", "cluster": "local"})
