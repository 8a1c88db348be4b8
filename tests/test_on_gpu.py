"""What is to be recorded on a GPU box: every entry's words are a job that would be taken, traverses go on
where they were, and what several workers measure side by side comes back as one."""

import argparse
import gzip
import importlib.util
import itertools
import json
import sys
import tarfile

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
record_step, recordings, sharing = (sys.modules[n] for n in ("record_step", "recordings", "sharing"))
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


@pytest.mark.parametrize("entry", every_entry(), ids=lambda e: e.title)
def test_every_entry_is_a_job(entry):
    assert [v for v in recordings.VERBS if v in entry.table] == [entry.verb] and entry.seconds() > 0
    assert submit.validate(entry.verb, entry.spec)["device"] == "cpu"


def test_no_two_entries_share_a_title():
    assert len({e.title for e in every_entry()}) == len(every_entry())


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
        "resume": tmp_path,
        "device": "cpu",
        "budget_s": 100.0,
        "case_budget_s": 5.0,
    }
    return argparse.Namespace(**given | {"gpus": 1, "out": tmp_path / "out"} | changes)


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


def traverse_of(count, seconds, **more):
    return {"title": f"T{count}", "seconds": seconds, "traverse": ["--limit", str(count), *TINY]} | more


def test_workers_share_a_traverse_without_measuring_a_scheme_twice(monkeypatch, tmp_path):
    entry, search = only(
        monkeypatch,
        tmp_path,
        traverse_of(4000, 2000),
        {"title": "S", "seconds": 50, "turn": 1, "search": TINY},
    )
    queue = sharing.Queue([entry, search], 4, 700.0)
    shares = sharing.simulate(queue)
    assert queue.rest() == [] and max(begin + s.seconds for _, begin, s in shares) <= 700
    parts = sorted(s.part for _, _, s in shares if s.part)
    assert (
        parts[0][0] == 0 and parts[-1][1] == 4000 and all(a[1] == b[0] for a, b in itertools.pairwise(parts))
    )
    assert {w for w, _, s in shares if s.part} == set(range(4)) and len(parts) <= 8, (
        "the start of a part is paid once more each"
    )
    assert [s.entry.title for _, _, s in shares][-1] == "S" or shares[-1][1] >= shares[-2][1]


def test_what_does_not_fit_is_left_and_the_first_turn_goes_first(monkeypatch, tmp_path):
    only(monkeypatch, tmp_path, traverse_of(4000, 2000, turn=1), traverse_of(500, 150), traverse_of(510, 100))
    queue = sharing.Queue(recordings.entries(tmp_path, "cpu"), 2, 300.0)
    shares = sharing.simulate(queue)
    assert [s.entry.title for _, _, s in shares[:2]] == ["T500", "T510"], (
        "the longest of the first turn first"
    )
    left = queue.rest()
    assert [e.title for e, _ in left] == ["T4000"] and 0 < left[0][1] < 2000
    assert all(begin + s.seconds <= 301 for _, begin, s in shares)


def test_the_pace_of_the_first_part_cuts_the_next(monkeypatch, tmp_path):
    entry, other = only(monkeypatch, tmp_path, traverse_of(4000, 2060), traverse_of(4001, 2060.5, turn=1))
    queue = sharing.Queue([entry, other], 2, 260.0)
    first = queue.take(260.0)
    assert first.schemes == 400
    queue.learn(first, 400, recordings.START_S + 100)
    assert queue.take(260.0).schemes == 800
    queue = sharing.Queue([other], 2, 260.0)
    queue.learn(first, 400, recordings.START_S + 100)
    assert queue.take(260.0).schemes == 800, "of another that nothing is known of, the same is expected"


def test_a_short_traverse_is_not_cut_to_pieces(monkeypatch, tmp_path):
    entries = only(monkeypatch, tmp_path, traverse_of(100, 60))
    assert [s.part for _, _, s in sharing.simulate(sharing.Queue(entries, 8, 500.0))] == [(0, 100)]


def test_each_worker_has_a_gpu_and_cores_of_its_own(tmp_path, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    asked = options(tmp_path, gpus=2, device="cuda:0")
    first, second = (record_step.Worker(i, None, asked, 0.0).environment() for i in range(2))
    assert (first["CUDA_VISIBLE_DEVICES"], second["CUDA_VISIBLE_DEVICES"]) == ("0", "1")
    assert (
        first["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
        and first["FUSESCOPE_PROFILES"] != second["FUSESCOPE_PROFILES"]
    )
    assert int(first["OMP_NUM_THREADS"]) >= 1 and first["FUSESCOPE_JOBS"] == first["OMP_NUM_THREADS"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    assert record_step.Worker(1, None, asked, 0.0).environment()["CUDA_VISIBLE_DEVICES"] == "5"
    alone = record_step.Worker(0, None, options(tmp_path, device="cuda:0"), 0.0).environment()
    assert alone["CUDA_VISIBLE_DEVICES"] == "3,5", "a single worker leaves the choice as it is"


@pytest.mark.slow
def test_two_workers_record_a_traverse_and_it_comes_back_as_one(tmp_path, monkeypatch, profiles):
    """The whole step on the CPU: parts measured, one command that fails, merged, packed; unpacked it is one
    run of all schemes."""
    monkeypatch.setattr(recordings, "START_S", 0.1)
    words = ["32768", "33000", "--limit", "12", "--budget", "0.002", "--no-segments", *TINY]
    only(
        monkeypatch,
        tmp_path,
        {"title": "T", "seconds": 60, "traverse": words},
        {"title": "Wrong", "seconds": 1, "turn": -1, "bench": ["add", "--case", "n=-3"]},
    )
    asked = options(tmp_path, gpus=2, budget_s=150.0, only="T,wrong")
    asked.out.mkdir()
    text = record_step.record(asked)
    assert "-- Wrong" in text and "done" in text, text
    with tarfile.open(asked.out / "recorded.tar.gz") as archive:
        archive.extractall(profiles / "recorded", filter="data")
    (path,) = (profiles / "recorded").glob("2*")
    run, records = folder.read(path), folder.records(path)
    assert run.status == "done" and run.title == "T" and run.spec["part"] is None
    assert len(run.environment["sittings"]) == 2 and all(
        s["schemes"] == 6 for s in run.environment["sittings"]
    )
    layers = [r for r in records if r.op == OP]
    assert sorted(r.impl for r in layers) == sorted(
        [*exhaustive.codes([[32768, 33000]], 12, 0), *baselines.BASELINES]
    )
    measured = {s["run"] for s in run.environment["sittings"]}
    assert {r.extra["sitting"] for r in layers} == measured
    assert {(s["case_key"], s["impl"]) for s in folder.samples(path)} >= {
        (r.case_key, r.impl) for r in layers if r.status == "ok"
    }
    assert sessions.records(path.name) == records
    assert not (asked.out / "work").exists() and (asked.out / "record.log").read_text().count("traverse") >= 2
    assert all(gzip.decompress((path / f"{n}.jsonl.gz").read_bytes()) for n in ("results", "samples"))
    left = [e.title for e in recordings.entries(profiles / "recorded", "cpu")]
    assert left == ["Wrong"], "nothing of the traverse is left"


def test_parts_are_merged_with_the_sessions_before(tmp_path, profiles):
    spec = recordings.Entry({"title": "T", "traverse": ["--limit", "4", *TINY]}, tmp_path, "cpu").spec
    spec, codes = submit.validate("traverse", spec), exhaustive.codes(None, 4, 0)
    case = {k: spec[k] for k in ("batch", "seq", "heads", "head_dim", "ffn", "mask", "compiler")}

    def run(codes, **changes):
        writer = folder.Writer(folder.create("traverse", spec | changes))
        writer.environment(device_name="NVIDIA H200")
        for code in codes:
            writer.record(Record(OP, code, case, "float32", "cpu", "error", reason="made up"))
        writer.close()
        return writer.path

    before = run(codes[:2])
    parts = [run(codes[2:3], part=[2, 3], after=before.name), run(codes[3:], part=[3, 4], after=before.name)]
    text = "\n".join(record_step.merge_parts(parts, [before], "T"))
    (path,) = (p for p in profiles.glob("2*") if p != before)
    assert (
        f"what {before.name} hold: delete these" in text
        and "done" in text
        and folder.read(path).spec["after"] is None
    )
    assert (
        sorted(r.impl for r in folder.records(path)) == sorted(codes)
        and (path / "results.jsonl.gz").is_file()
    )
