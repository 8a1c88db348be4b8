"""Traverse and search as jobs and verbs: killed and begun again, replayed offline, their JSON."""

import contextlib
import json
import os
import signal
import sys
import time

import pytest

from fusescope import cli
from fusescope.core.paths import ROOT
from fusescope.core.records import Record, Time, Times
from fusescope.jobs import kinds, submit
from fusescope.jobs.kinds import search
from fusescope.search import encoding
from fusescope.search.learning import explore
from fusescope.search.measuring import baselines
from fusescope.search.scheme.setting import OP, Setting, of_spec
from fusescope.store import folder, library

WORDS = [
    "32768",
    "32800",
    "--seq",
    "16",
    "--heads",
    "2",
    "--head-dim",
    "32",
    "--device",
    "cpu",
    "--dtype",
    "float32",
    "--compiler",
    "none",
    "--no-segments",
    "--budget",
    "0.002",
]


@pytest.fixture
def jobs(profiles, tmp_path, monkeypatch):
    """Jobs of this test alone, of one thread."""
    monkeypatch.setenv("FUSESCOPE_RUNTIME", str(tmp_path / "runtime"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    yield profiles
    for state in (tmp_path / "runtime").glob("user-*/warm-*.json"):
        with contextlib.suppress(ProcessLookupError, ValueError, FileNotFoundError):
            os.kill(json.loads(state.read_text())["pid"], signal.SIGKILL)


def _valid(name, data):
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.Draft202012Validator(
        json.loads((ROOT / "backend" / "fusescope" / "schemas" / f"{name}.json").read_text())
    ).validate(data)


def _parsed(verb, words):
    parser = cli.Parser()
    verb.arguments(parser, [])
    return parser.parse_args(words)


def _schemes(path):
    return [r.impl for r in folder.records(path) if r.op == OP and r.impl not in baselines.BASELINES]


def test_a_request_whose_run_was_stopped_is_resumed(profiles, capsys, monkeypatch):
    """By the verb alone, without measuring; test_killed_anywhere… does it for real."""
    from fusescope.cli import follow
    from fusescope.cli.verbs import traverse

    spec = submit.validate("traverse", traverse.specify(_parsed(traverse, WORDS)))
    path, asked = folder.create("traverse", spec), []
    with contextlib.closing(folder.Writer(path)) as stopped:
        stopped.state("cancelled", "stopped on request")

    def finished(run_id):
        writer = folder.Writer(path)
        times = Times(eager=Time(2.0, 2.0, 2.0, 9, True))
        where = of_spec(spec).case(), "float32", "cpu"
        writer.record(Record(OP, "1000000000000000", *where, "ok", time_ms=times))
        writer.record(Record(OP, "1000000000000001", *where, "wrong", "off by 1"))
        writer.record(Record(OP, "unfused", *where, "ok", time_ms=times))
        writer.state("done")
        writer.close()
        return folder.read(path)

    monkeypatch.setattr(follow, "resumed", asked.append)
    monkeypatch.setattr(follow, "follow", finished)
    assert traverse.unfinished(spec) == path.name
    code = cli.main(["traverse", *WORDS])
    out, err = capsys.readouterr()
    assert code == 0 and asked == [path.name] and f"{path.name} was started with this request" in err
    assert "1000000000000000" in out and "unfused" in out
    assert traverse.unfinished(spec) is None, "what is done is not resumed"
    begun = []
    monkeypatch.setattr(follow, "submitted", lambda *given: begun.append(given) or path.name)
    assert cli.main(["traverse", *WORDS, "--fresh"]) == 0 and asked == [path.name]
    ((kind, again, title),) = begun
    assert (kind, title, kinds.load(kind).device(again)) == ("traverse", "", "cpu")
    assert {**again, "after": None} == {**spec, "after": None}


@pytest.mark.long
def test_killed_anywhere_and_begun_again_nothing_is_measured_twice(jobs, capsys):
    from fusescope.cli.verbs import traverse as verb

    run_id = submit.submit("traverse", verb.specify(_parsed(verb, WORDS)))
    path = library.find(run_id)
    end = time.monotonic() + 120
    while len(before := _schemes(path)) < 8:
        assert folder.read(path).live and time.monotonic() < end, folder.read(path)
        time.sleep(0.01)
    os.kill(json.loads((path / "run.json").read_text())["worker"]["pid"], signal.SIGKILL)
    submit.wait(run_id, 10)
    assert folder.read(path).status == "interrupted"
    before = _schemes(path)
    code = cli.main(["traverse", *WORDS, "--json"])
    out, err = capsys.readouterr()
    data = json.loads(out)
    _valid("traverse", data)
    assert code == 0 and data["run"] == run_id and f"{run_id} was started with this request" in err
    after = _schemes(path)
    distinct = set(encoding.distinct(range(32768, 32801)))
    assert len(before) < len(distinct), "it was killed before the end"
    assert (
        after[: len(before)] == before
        and len(after) == len(set(after)) == data["measured"] == len(distinct)
        and set(after) == distinct
    )
    assert [b["code"] for b in data["baselines"]] == list(baselines.BASELINES) and data["failures"] == []
    assert [b["ms"] for b in data["best"]] == sorted(b["ms"] for b in data["best"]) and len(
        data["best"]
    ) == 10
    assert folder.read(path).progress.done == len(distinct)
    assert verb.unfinished(dict(folder.read(path).spec)) is None, "what is done is not resumed"
    replayed = submit.submit("search", {"replay": run_id, "strategy": "additive", "evaluations": 20})
    assert submit.wait(replayed, 60).status == "done", folder.read(library.find(replayed)).reason
    told = json.loads((library.find(replayed) / "artifacts" / "search.json").read_text())
    assert (
        len(told["history"]) == 20
        and told["result"]["best_of_all_ms"] == data["best"][0]["ms"]
        and told["replay"] == run_id
    )
    assert told["setting"]["heads"] == 2 and not folder.records(library.find(replayed))


def test_generate(capsys, tmp_path):
    file = tmp_path / "scheme.py"
    assert cli.main(["generate", "16022", "--device", "cpu", "--json", "--save", str(file)]) == 0
    data = json.loads(capsys.readouterr().out)
    _valid("generate", data)
    assert (
        file.read_text() == data["source"]
        and data["code"] == "0100000101101001"
        and data["setting"]["dtype"] == "float32"
    )
    assert [i for s in data["segments"] for i in s["operators"]] == list(range(15))
    assert cli.main(["generate", "16022", "--device", "cpu"]) == 0
    assert capsys.readouterr().out == data["source"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["generate", "011"], "a code is exactly 16 characters of 0 and 1"),
        (["generate", "1", "--device", "cpu", "--mask", "nothing"], "unknown mask 'nothing'"),
        (["traverse", "1"], "in pairs, not by 1 codes"),
        (["traverse", "9", "1", "--device", "cpu"], "not from 9 to 1"),
        (
            ["traverse", "1", "9", "--device", "cpu", "--limit", "0"],
            "argument --limit: must be an integer from 1 to 2,147,483,647, not 0",
        ),
        (
            ["traverse", "1", "9", "--device", "cpu", "--deadline", "-1"],
            "argument --deadline: must be a number above 0, not -1.0",
        ),
    ],
)
def test_bad_arguments(words, says, capsys, profiles):
    assert cli.main(words) == 2
    out, err = capsys.readouterr()
    assert out == "" and says in err and err.count("\n") == 1 and not list(profiles.iterdir())


def test_what_slows_the_unfused_layer_too_is_no_property_of_a_scheme():
    from fusescope.core.records import Speedup
    from fusescope.search.learning import pairs

    setting = Setting(1, 16, 2, 32, dtype="float32")

    def record(code, ms, unfused_ms):
        beside = Speedup("eager", *[unfused_ms / ms] * 3) if unfused_ms else None
        return Record(
            OP,
            code,
            setting.case(),
            setting.dtype,
            "cpu",
            "ok",
            time_ms=Times(eager=Time(ms, ms, ms, 9, True)),
            speedup=beside,
        )

    a, b, c, d = "0101010101010101", "0101010101010110", "0111111111111111", "0100000000000001"
    some = [record(a, 2.0, 4.0), record(b, 3.3, 4.4), record(c, 1.0, 4.0), record(d, 9.0, None)]
    assert pairs.of_records(some) == {a: 2.0, b: 3.3, c: 1.0, d: 9.0}
    assert pairs.beside_unfused(some) == pytest.approx({a: 2.0, b: 3.0, c: 1.0, d: 9.0})


def test_pairs_come_from_records_of_one_setting(profiles):
    from fusescope.search import sessions
    from fusescope.search.learning import pairs

    setting = Setting(1, 16, 2, 32, dtype="float32")

    def record(impl, ms, where=setting, status="ok"):
        times = {"time_ms": Times(eager=Time(ms, ms, ms, 9, True))} if status == "ok" else {"reason": "x"}
        return Record(OP, impl, where.case(), where.dtype, "cpu", status, **times)

    good = [
        record("0101010101010101", 2.0),
        record("unfused", 3.0),
        record("0101010101010100", 1.0, status="wrong"),
    ]
    assert pairs.of_records(good) == {"0101010101010101": 2.0}
    other = Setting(2, 16, 2, 32, dtype="float32")
    with pytest.raises(ValueError, match="records are of 2 settings"):
        pairs.of_records([*good, record("0101010101010100", 1.0, other)])
    made = []
    for device, records in (("A", good), ("A", [record("0101010101010110", 1.5)]), ("B", good)):
        writer = folder.Writer(folder.create("traverse", setting.spec()))
        writer.environment(device_name=device)
        for r in records:
            writer.record(r)
        writer.state("done")
        writer.close()
        made.append(writer.path.name)
    assert sessions.times(",".join(made[:2])) == (
        {"0101010101010101": 2.0, "0101010101010110": 1.5},
        setting,
    ), "two sessions"
    replay = {"replay": ",".join(made[:2]), "strategy": "additive", "evaluations": 2}
    whole = search.validate(replay | {"device": "cuda:7"})
    assert (whole["seq"], whole["heads"]) == (16, 2) and search.device(whole) is None
    with pytest.raises(ValueError, match="takes no cluster, not 'local:2'"):
        search.validate(replay | {"cluster": "local:2"})
    with pytest.raises(ValueError, match="replay names one or more traverses"):
        search.validate(replay | {"replay": " , "})
    with pytest.raises(ValueError, match="2 kinds of device"):
        sessions.times(f"{made[0]}, {made[2]}")
    path = folder.create("traverse", setting.spec())
    with pytest.raises(ValueError, match="holds no time of a scheme"):
        sessions.times(path.name)


def test_without_xgboost(monkeypatch, capsys, tmp_path):
    """What needs it names the package to install; all the rest goes on."""
    monkeypatch.setitem(sys.modules, "xgboost", None)
    file = tmp_path / "pairs.txt"
    file.write_text("".join(f"{c}\t1.5\n" for c in encoding.schemes(True)))
    for words in (
        ["predict", "1", "--data", str(file)],
        ["search", "--device", "cpu", "--strategy", "guided"],
    ):
        assert cli.main(words) == 1
        assert "pip install xgboost-cpu==" in capsys.readouterr().err
    assert len(explore.replay(dict.fromkeys(encoding.schemes(True), 1.0), "additive", 30)) == 30


def test_a_part_of_a_traverse_is_two_numbers():
    from fusescope.cli.verbs import traverse

    assert traverse.part(None) is None and traverse.part("1000:2000") == [1000, 2000]
    for text in ("1000", "1:2:3", "a:b", ":5", "-1:5"):
        with pytest.raises(ValueError, match="START:STOP, two integers"):
            traverse.part(text)
