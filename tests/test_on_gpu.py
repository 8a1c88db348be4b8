"""What is to be recorded on a GPU box: every entry's words are a job that would be taken, traverses go on
where they were, and several GPUs share the work of an entry."""

import argparse
import gzip
import importlib.util
import json
import subprocess
import sys
import tarfile
import threading

import pytest

from fusescope.core.paths import ROOT
from fusescope.core.records import Record
from fusescope.jobs import submit
from fusescope.search import sessions
from fusescope.search.measuring import baselines
from fusescope.search.scheme.setting import OP
from fusescope.search.sweeps import exhaustive
from fusescope.store import folder

_spec = importlib.util.spec_from_file_location("on_gpu", ROOT / "scripts" / "on_gpu.py")
on_gpu = importlib.util.module_from_spec(_spec)
sys.modules["on_gpu"] = on_gpu  # where the processes that join look for it
_spec.loader.exec_module(on_gpu)
record_step, recordings = sys.modules["record_step"], sys.modules["recordings"]
TINY = [
    "--batch",
    "1",
    "--seq",
    "16",
    "--heads",
    "2",
    "--head-dim",
    "32",
    "--dtype",
    "float32",
    "--compiler",
    "none",
]


def every_entry(tmp_path=ROOT / "profiles" / "none"):
    return recordings.entries(tmp_path, "cpu")


@pytest.mark.long
@pytest.mark.parametrize("entry", every_entry(), ids=lambda e: e.title)
def test_every_entry_is_a_job(entry):
    assert [v for v in recordings.VERBS if v in entry.table] == [entry.verb] and entry.seconds() > 0
    assert submit.validate(entry.verb, entry.spec)["device"] == "cpu"


def test_no_two_entries_share_a_title():
    assert len({e.title for e in every_entry()}) == len(every_entry())


def test_an_entry_may_say_how_long_its_cases_are_sampled(monkeypatch, tmp_path):
    table = {"title": "a", "seconds": 9, "processes": 2, "bench": ["add", "--case", "n=64"]}
    for said, budget in (({}, "2.5"), ({"case_budget_s": 20}, "10")):
        (entry,) = only(monkeypatch, tmp_path, table | said)
        words = entry.words(100.0, 5.0)
        assert words[words.index("--budget") + 1] == budget


def test_what_is_for_the_processor_is_not_recorded_on_a_gpu(tmp_path):
    everything, on_a_gpu = (
        {e.title for e in recordings.entries(tmp_path, device)} for device in ("cpu", "cuda:1")
    )
    left = everything - on_a_gpu
    assert left and all(title.startswith("CPU: ") for title in left)
    assert not [title for title in on_a_gpu if title.startswith("CPU: ")]


def test_what_ships_is_small():
    """As profiles/README.md says."""
    recorded = ROOT / "profiles" / "recorded"
    assert sum(f.stat().st_size for f in recorded.rglob("*") if f.is_file()) < 16 << 20


def options(tmp_path, **changes):
    given = {
        "only": "",
        "missing": True,
        "on": "",
        "resume": tmp_path,
        "device": "cpu",
        "budget_s": 100.0,
        "case_budget_s": 5.0,
    }
    given |= {"gpus": 1, "entry_per_gpu": False, "out": tmp_path / "out"}
    return argparse.Namespace(**given | changes)


def only(monkeypatch, tmp_path, *tables, device="cpu"):
    """recordings.toml with these entries alone."""
    file = tmp_path / "scripts" / "recordings.toml"
    file.parent.mkdir(exist_ok=True)
    lines = []
    for table in tables:
        lines += ["[[run]]", *(f"{key} = {json.dumps(value)}" for key, value in table.items())]
    file.write_text("\n".join(lines))
    monkeypatch.setattr(recordings, "ROOT", tmp_path)
    return recordings.entries(tmp_path, device)


def test_a_traverse_goes_on_after_what_is_recorded(tmp_path, monkeypatch):
    words = ["32768", "33000", "--batch", "1", "--seq", "16", "--dtype", "float32"]
    tables = [{"title": "T", "seconds": 80, "traverse": w} for w in (words, [*words, "--mask", "causal"])]
    entry = only(monkeypatch, tmp_path, *tables)[0]
    assert entry.before == [] and entry.share == 1.0
    spec = submit.validate("traverse", entry.spec)
    codes = exhaustive.codes(spec["ranges"], None, 0)
    case = {k: spec[k] for k in ("batch", "seq", "heads", "head_dim", "ffn", "mask", "compiler")}
    monkeypatch.setenv("FUSESCOPE_PROFILES", str(tmp_path))
    writer = folder.Writer(folder.create("traverse", spec))
    for code in codes[: len(codes) // 2]:
        writer.record(Record("layer", code, case, "float32", "cpu", "error", reason="made up"))
    writer.close()
    entry, other = only(monkeypatch, tmp_path, *tables)
    assert entry.before == [writer.path] and entry.share == pytest.approx(1 - (len(codes) // 2) / len(codes))
    command = entry.words(60, 5.0)
    assert command[command.index("--after") + 1] == writer.path.name and "--deadline" in command
    assert other.before == [] and other.share == 1.0, "another setting's session is none of this one"
    text = record_step.plan(options(tmp_path, budget_s=100.0))
    assert "in 1 sessions" in text and "beyond the time" in text and text.count("traverse") == 2


def test_what_is_whole_is_left_out(tmp_path, monkeypatch):
    only(monkeypatch, tmp_path, {"title": "Adding", "seconds": 5, "bench": ["add", "--case", "n=1024"]})
    run = tmp_path / "20260101-000000-bench-000000"
    run.mkdir()
    (run / "notes.json").write_text(json.dumps({"title": "Adding"}))
    (run / "run.json").write_text(json.dumps({"status": "cancelled"}))

    def titles(**changes):
        return [e.title for e in record_step.wanted(options(tmp_path, **changes))]

    assert titles() == ["Adding"]
    (run / "run.json").write_text(json.dumps({"status": "done"}))
    assert titles() == [] and titles(missing=False) == ["Adding"]
    assert titles(missing=False, only="gemm,softmax") == []
    (run / "run.json").write_text(
        json.dumps({"status": "done", "environment": {"device_name": "NVIDIA H100"}})
    )
    assert titles(on="NVIDIA H100") == [] and titles(on="NVIDIA H200") == ["Adding"]


def traverse_of(count, seconds, **more):
    return {"title": f"T{count}", "seconds": seconds, "traverse": ["--limit", str(count), *TINY]} | more


def test_what_does_not_fit_is_left_and_the_first_turn_goes_first(monkeypatch, tmp_path):
    only(
        monkeypatch,
        tmp_path,
        traverse_of(4000, 2000, turn=1),
        traverse_of(500, 150),
        {"title": "Long", "seconds": 900, "turn": 2, "bench": ["add", "--case", "n=1024"]},
    )
    lines = record_step.plan(options(tmp_path, budget_s=300.0)).splitlines()
    assert [line.split()[-1] for line in lines[:2]] == ["T500", "T4000"], "a traverse begins with a minute"
    assert lines[2].startswith("beyond the time") and lines[3].endswith("Long")


def test_several_gpus_share_the_work_of_each_entry(monkeypatch, tmp_path):
    bench = {"title": "B", "seconds": 60, "bench": ["add", "--case", "n=8", "--case", "n=16"]}
    traverse, many = only(monkeypatch, tmp_path, traverse_of(4000, 2060), bench)
    assert "--cluster" not in traverse.words(60, 5.0)
    for entry in (traverse, many):
        words = entry.words(60, 5.0, 4)
        assert words[words.index("--cluster") + 1] == "local:4"
    assert traverse.seconds(4) == recordings.START_S + 500 and many.seconds(4) == 30, "a case stays on one"


def test_each_gpu_takes_an_entry_of_its_own(monkeypatch, tmp_path):
    """Its command sees one GPU and shares nothing; a free GPU takes the next; one that fails costs itself."""
    tables = [{"title": f"B{n}", "seconds": n, "bench": ["add", "--case", f"n={n}"]} for n in (9, 8, 7, 6)]
    only(monkeypatch, tmp_path, *tables)
    asked = options(tmp_path, gpus=2, entry_per_gpu=True, only="B")
    spans = [line.split()[0:3:2] for line in record_step.plan(asked).splitlines()[:4]]
    assert spans == [["0", "9"], ["0", "8"], ["8", "15"], ["9", "15"]]
    asked.out.mkdir()
    seen, both = [], threading.Barrier(2, timeout=30)

    def run(words, log, left, environment, stop_s):
        seen.append((words[words.index("--title") + 1], environment["CUDA_VISIBLE_DEVICES"], log.name))
        assert "--cluster" not in words
        if len(seen) <= 2:
            both.wait()  # two run at one time
        if "B8" in words:
            raise OSError("the box is full")
        return subprocess.CompletedProcess(words, 0, b'{"run": "r", "records": []}')

    monkeypatch.setattr(record_step, "run", run)
    text = record_step.record(asked)
    assert sorted(title for title, _, _ in seen) == ["B6", "B7", "B8", "B9"]
    assert {gpu for _, gpu, _ in seen[:2]} == {"0", "1"}
    assert all(log == f"record-{gpu}.log" for _, gpu, log in seen)
    assert text.count("== B") == 3 and "-- B8: OSError: the box is full" in text


@pytest.mark.long
def test_two_workers_record_a_traverse_as_one_run(tmp_path, monkeypatch, profiles):
    """The whole step on the CPU: a sweep that two workers share, one command that fails, packed; unpacked it
    is one run of all schemes, of which nothing is left to do."""
    words = ["32768", "33000", "--limit", "12", "--budget", "0.002", "--no-segments", *TINY]
    only(
        monkeypatch,
        tmp_path,
        {"title": "T", "seconds": 60, "traverse": words},
        {"title": "Wrong", "seconds": 1, "turn": -1, "bench": ["add", "--case", "n=-3"]},
    )
    asked = options(tmp_path, gpus=2, budget_s=300.0, only="T,wrong")
    asked.out.mkdir()
    text = record_step.record(asked)
    assert "-- Wrong" in text and "== T" in text, text
    with tarfile.open(asked.out / "recorded.tar.gz") as archive:
        archive.extractall(profiles / "recorded", filter="data")
    (path,) = (profiles / "recorded").glob("2*")
    run, records = folder.read(path), folder.records(path)
    assert run.status == "done" and run.title == "T" and len(run.environment["workers"]) == 2
    assert sum(worker["done"] for worker in run.environment["workers"]) > 0
    layers = [r.impl for r in records if r.op == OP]
    assert sorted(layers) == sorted([*exhaustive.codes([[32768, 33000]], 12, 0), *baselines.BASELINES])
    assert sessions.records(path.name) == records
    assert not (asked.out / "work").exists() and (asked.out / "record.log").read_text().count("traverse") >= 1
    assert all(gzip.decompress((path / f"{n}.jsonl.gz").read_bytes()) for n in ("results", "samples"))
    left = [e.title for e in recordings.entries(profiles / "recorded", "cpu")]
    assert left == ["Wrong"], "nothing of the traverse is left"
