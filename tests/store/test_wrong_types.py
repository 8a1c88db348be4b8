"""One run with a value of a wrong type is one row that says so; all others are listed, read and deleted."""

import json
import re

import make_runs
import pytest
import wrong_types

from fusescope.core.errors import RunError
from fusescope.core.foreign.text import printable
from fusescope.core.records import Record, Run
from fusescope.jobs import kinds
from fusescope.search import sessions
from fusescope.store import folder, library, transfer


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    where = tmp_path_factory.mktemp("wrong") / "profiles"
    return where, wrong_types.write(where)


@pytest.fixture
def wrong(home, monkeypatch):
    monkeypatch.setenv("FUSESCOPE_PROFILES", str(home[0]))
    return home[1]


@pytest.mark.long
def test_every_other_run_is_listed(wrong):
    found, total = library.runs(limit=10_000)
    broken = dict(library.broken())
    assert total + len(broken) == len(wrong) + 3
    assert {r.id for r in found} | set(broken) >= set(wrong) and len(library.records()) >= 12
    for run in found:
        text = f"{run.id} {kinds.name(run)} {run.device_name} {run.title} {run.reason} {', '.join(run.tags)}"
        printable(text).encode()
        assert Run.from_json(json.loads(json.dumps(run.to_json()))) == run


@pytest.mark.slow
def test_each_is_read_or_refused_in_one_sentence(wrong):
    read = 0
    for run_id, what in wrong.items():
        path = library.find(run_id)
        try:
            run, records, samples = folder.read(path), folder.records(path), folder.samples(path)
        except RunError as error:
            assert str(error) and "\n" not in str(error), what
            continue
        read += 1
        assert all(isinstance(r, Record) for r in records) and isinstance(samples, list), what
        json.dumps(run.to_json()).encode()
    assert 0 < read < len(wrong)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"progress": []}, "progress must be an object"),
        ({"progress": {"done": "3"}}, "progress.done must be an integer"),
        ({"reason": ["a"]}, "reason must be a text"),
        ({"spec": None}, "spec is null"),
        ({"spec": "x"}, "spec must be an object"),
        ({"spec": {"cases": 3}}, "spec.cases must be a list"),
        ({"created": "yesterday"}, "created must be a number"),
        ({"finished": 1e300}, "finished must be a number"),
        ({"status": "great"}, "status must be queued"),
        ({"kind": 7}, "kind must be a text"),
    ],
)
def test_the_reason_names_field_rule_and_value(profiles, data, says):
    path = profiles / "20260101-000000-bench-aaaaaa"
    path.mkdir()
    (path / "run.json").write_text(json.dumps(wrong_types.RUN | data))
    with pytest.raises(RunError, match=says):
        folder.read(path)
    ((run_id, why),) = library.broken()
    assert run_id == path.name and says in why


def test_a_lone_surrogate_is_replaced_and_notes_of_another_type_are_lost(profiles):
    path = profiles / "20260101-000000-bench-aaaaaa"
    path.mkdir()
    run = {k: v for k, v in wrong_types.RUN.items() if k != "contents"}
    (path / "run.json").write_text(json.dumps(run))
    (path / "notes.json").write_text('{"title": "a\\ud800b", "tags": ["x", 1], "notes": 5}')
    found = library.runs()[0][0]
    assert (found.title, found.tags, found.notes) == ("a\ufffdb", (), "")
    assert found.id == path.name  # whatever run.json says


def test_what_cannot_be_read_can_be_deleted(profiles):
    (profiles / "20260101-000000-bench-aaaaaa").mkdir()
    (profiles / "20260101-000000-bench-aaaaab").mkdir()
    (profiles / "20260101-000000-bench-aaaaab" / "run.json").write_text("{torn")
    for run_id, _ in library.broken():
        transfer.delete(run_id)
    assert library.broken() == [] and library.runs()[1] == 0


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        ({"memory": "much"}, "extra.memory must be an object of keys and values"),
        ({"memory": {"peak_bytes": -1}}, "extra.memory.peak_bytes must be an integer from 0"),
        ({"throughput": {"tokens_per_s": float("inf")}}, "extra.throughput.tokens_per_s must be a number"),
        ({"percentiles_ms": [1.0]}, "extra.percentiles_ms must be an object"),
        ({"percentiles_ms": {"graph": {"p50": "fast"}}}, "extra.percentiles_ms.graph.p50 must be a number"),
        ({"percentiles_ms": {"graph": None}}, "extra.percentiles_ms.graph is null"),
        ({"parts": {"attention": {"ms": 1.0}}}, "extra.parts.attention.share is missing"),
        ({"parallel": {"layout": "tp2"}}, "extra.parallel.tp is missing"),
        ({"generation": {"memory": {}, "token_ms": {"p50": []}}}, "extra.generation.token_ms.p50 must be"),
    ],
)
def test_what_a_record_says_besides_its_times_is_typed(extra, says):
    data = make_runs.record("add", 1, "eager") | {"extra": extra}
    with pytest.raises(ValueError, match=re.escape(says)):
        Record.from_json(data)


def test_unknown_keys_and_absent_values_of_extra_are_kept():
    extra = {"memory": None, "parts": {"other": None}, "percentiles_ms": {"graph": {"p50": 1}}, "new": [1]}
    data = make_runs.record("add", 1, "eager") | {"extra": extra}
    assert Record.from_json(data).to_json()["extra"] == extra


@pytest.mark.parametrize("times", [{}, {"first": 1.0}])
def test_an_ok_record_has_a_time(times):
    with pytest.raises(ValueError, match="an ok record carries its times"):
        Record.from_json(make_runs.record("add", 1, "eager") | {"time_ms": times})


def test_ranks_have_a_number_each():
    share = {"span_ms": 1.0, "compute_ms": 1.0, "communication_ms": 0.0, "exposed_ms": 0}
    parallel = {"layout": "tp2", "tp": 2, "pp": 1, "dp": 1, "ranks": 2, "scaling": "strong"}
    parallel |= {"attention": "sdpa", "communication": {"ranks": [share, None]}}
    data = make_runs.record("add", 1, "eager")
    whole = parallel | {"weights_bytes": [1, 2], "peak_bytes": [None, 3]}
    assert Record.from_json(data | {"extra": {"parallel": whole}}).extra["parallel"] == whole
    with pytest.raises(ValueError, match="weights_bytes has a number for each of 2 ranks"):
        Record.from_json(data | {"extra": {"parallel": whole | {"weights_bytes": [1]}}})
    with pytest.raises(ValueError, match=r"communication.ranks.0.span_ms is missing"):
        Record.from_json(data | {"extra": {"parallel": whole | {"communication": {"ranks": [{}]}}}})


def test_search_json_is_typed(profiles):
    path = profiles / "20260101-000000-search-000000"
    (path / "artifacts").mkdir(parents=True)
    (path / "run.json").write_text(json.dumps(wrong_types.RUN | {"id": path.name, "kind": "search"}))
    file = path / "artifacts" / "search.json"
    assert sessions.found(path.name) is None
    file.write_text('{"history": [], "result": {"code": "0", "ms": 1}}')
    assert sessions.found(path.name)["result"]["speedups"] == {}
    for wrong, says in (
        ({"history": 1}, "history must be"),
        ({"history": [], "result": {"code": "0", "ms": 1.0, "speedups": [1]}}, "result.speedups must be"),
        ({"history": [], "result": {"code": "0"}}, "result.ms is missing"),
        (
            {"history": [], "segments": [{"operators": [], "ms": 1.0, "count": 1}]},
            "a segment has an operator",
        ),
        ([], "not a JSON object"),
    ):
        file.write_text(json.dumps(wrong))
        with pytest.raises(RunError, match=says):
            sessions.found(path.name)
