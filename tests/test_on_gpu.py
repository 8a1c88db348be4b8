"""What is to be recorded on a GPU box: every entry's words are a job that would be taken, and traverses go on where they were."""

import argparse
import importlib.util
import json

import pytest

from backend.core.paths import ROOT
from backend.core.records import Record
from backend.jobs import submit
from backend.search import traverse
from backend.store import folder

_spec = importlib.util.spec_from_file_location("on_gpu", ROOT / "scripts" / "on_gpu.py")
on_gpu = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(on_gpu)
ENTRIES = on_gpu.entries()


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: e["title"])
def test_every_entry_is_a_job(entry):
    assert [v for v in on_gpu.VERBS if v in entry] == [on_gpu.verb(entry)] and entry["seconds"] > 0
    assert submit.validate(on_gpu.verb(entry), on_gpu.parsed(entry, "cpu"))["device"] == "cpu"


def test_no_two_entries_share_a_title():
    assert len({e["title"] for e in ENTRIES}) == len(ENTRIES)


def options(tmp_path, **changes):
    given = {"only": "", "missing": True, "resume": tmp_path, "device": "cpu", "budget_s": 100.0, "case_budget_s": 5.0}
    return argparse.Namespace(**given | changes)


def test_a_traverse_goes_on_after_what_is_recorded(tmp_path, monkeypatch):
    words = ["32768", "33000", "--batch", "1", "--seq", "16", "--dtype", "float32"]
    entry = {"title": "T", "seconds": 80, "traverse": words}
    asked = options(tmp_path)
    assert on_gpu.left_over(entry, asked) == ([], 1.0)
    spec = submit.validate("traverse", on_gpu.parsed(entry, "cpu"))
    codes = traverse.codes(spec["ranges"], None, 0)
    case = {k: spec[k] for k in ("batch", "seq", "heads", "head_dim", "ffn", "mask", "compiler")}
    monkeypatch.setenv("FUSESCOPE_PROFILES", str(tmp_path))
    writer = folder.Writer(folder.create("traverse", spec))
    for code in codes[: len(codes) // 2]:
        writer.record(Record("layer", code, case, "float32", "cpu", "error", reason="made up"))
    writer.close()
    before, share = on_gpu.left_over(entry, asked)
    assert before == [writer.path] and share == pytest.approx(1 - (len(codes) // 2) / len(codes))
    command = on_gpu.words(entry, asked, 60, before)
    assert command[command.index("--after") + 1] == writer.path.name and "--deadline" in command
    other = entry | {"traverse": [*words, "--mask", "causal"]}
    assert on_gpu.left_over(other, asked) == ([], 1.0), "another setting's sitting is none of this one"
    monkeypatch.setattr(on_gpu, "entries", lambda: [entry, other])
    text = on_gpu.plan(asked)
    assert "in 1 sittings" in text and "beyond the time" in text and "2 entries" in text


def test_what_is_whole_is_left_out(tmp_path, monkeypatch):
    entry = {"title": "Adding", "seconds": 5, "bench": ["add", "--case", "n=1024"]}
    monkeypatch.setattr(on_gpu, "entries", lambda: [entry])
    run = tmp_path / "20260101-000000-bench-000000"
    run.mkdir()
    (run / "notes.json").write_text(json.dumps({"title": "Adding"}))
    (run / "run.json").write_text(json.dumps({"status": "cancelled"}))
    assert on_gpu.wanted(options(tmp_path)) == [entry]
    (run / "run.json").write_text(json.dumps({"status": "done"}))
    assert on_gpu.wanted(options(tmp_path)) == [] and on_gpu.wanted(options(tmp_path, missing=False)) == [entry]
    assert on_gpu.wanted(options(tmp_path, missing=False, only="gemm,softmax")) == []
