"""The profiles that are recorded on a GPU box, as far as they can be looked at without one: every entry is a
job that would be taken."""

from __future__ import annotations

import importlib.util
import tomllib

import pytest

from fusescope.core import paths
from fusescope.core.machine import environment
from fusescope.jobs import submit
from fusescope.jobs.profiled import outside_tool

SCRIPTS = paths.ROOT / "scripts"
ENTRIES = tomllib.loads((SCRIPTS / "profiles.toml").read_text())["profile"]


@pytest.fixture
def h200(monkeypatch):
    """A machine with a GPU and with Nsight Compute, for whoever asks."""
    monkeypatch.setattr(environment, "devices", lambda: ["cuda:0", "cpu"])
    monkeypatch.setattr(outside_tool, "find", lambda tool: f"/usr/local/cuda/bin/{tool}")


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: e["title"])
def test_every_entry_is_a_job_that_would_be_taken(entry, h200):
    spec = submit.validate(entry["kind"], entry["spec"] | {"device": "cuda:0", "deadline_s": 60})
    assert spec["impl"] == entry["spec"]["impl"] and entry["spec"]["case"].items() <= spec["case"].items()
    assert entry["kind"] in ("trace", "ncu")


def test_what_an_entry_names_wrongly_is_refused(h200):
    for change in ({"impl": "v9_nothing"}, {"metrics": "everything"}, {"case": {"batch": 0}}, {"more": 1}):
        with pytest.raises(ValueError):
            submit.validate(
                "ncu",
                {"op": "attention", "impl": "v3_hopper", "dtype": "float16", "case": {}, "device": "cuda:0"}
                | change,
            )


def test_bert_and_attention_are_there_by_every_way_that_is_asked_for():
    there = {(e["kind"], e["spec"]["op"], e["spec"]["impl"]) for e in ENTRIES}
    assert {
        (k, "model:bert-base", i) for k in ("trace", "ncu") for i in ("eager", "sdpa", "sdpa-graph", "fused")
    } <= there
    full = {e["spec"]["impl"] for e in ENTRIES if e["kind"] == "ncu" and e["spec"]["metrics"] == "full"}
    assert {"v1_rowwise", "v2_blockwise", "v3_hopper", "v4_scheduled", "v5_parts", "sdpa_cudnn"} <= full
    assert len({e["title"] for e in ENTRIES}) == len(ENTRIES)
    for report in (
        e["spec"]
        for e in ENTRIES
        if e["kind"] == "ncu" and e["spec"]["op"] == "attention" and e["spec"]["impl"] != "v1_rowwise"
    ):
        same = [
            e
            for e in ENTRIES
            if e["kind"] == "trace"
            and all(e["spec"][k] == report[k] for k in ("op", "impl", "case", "dtype"))
        ]
        assert same, f"no trace that the counters of {report} could be joined with"


def test_a_recording_keeps_what_a_page_shows(tmp_path):
    spec = importlib.util.spec_from_file_location("record_profiles", SCRIPTS / "record_profiles.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    (tmp_path / "artifacts").mkdir()
    for name, size in (
        ("summary.json", 10),
        ("report.ncu-rep", 10),
        ("ncu.csv", script.MOST_BYTES + 1),
        ("ncu_kernels.parquet", 10),
    ):
        (tmp_path / "artifacts" / name).write_bytes(bytes(size))
    (tmp_path / "results.jsonl").write_text("{}\n")
    script.trim(tmp_path)
    assert sorted(p.name for p in (tmp_path / "artifacts").iterdir()) == [
        "ncu_kernels.parquet",
        "summary.json",
    ]
    assert (tmp_path / "results.jsonl.gz").is_file() and not (tmp_path / "results.jsonl").exists()


def test_what_tables_were_made_of_is_packed(tmp_path):
    spec = importlib.util.spec_from_file_location("profile_tables", SCRIPTS / "profile_tables.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    for name, there in (("made", True), ("not-made", False)):
        artifacts = tmp_path / name / "artifacts"
        artifacts.mkdir(parents=True)
        (artifacts / "ncu.csv").write_text("ID,Kernel Name\n")
        if there:
            (artifacts / "summary.json").write_text("{}")
        assert bool(script._packed(artifacts)) == there
        assert (artifacts / "ncu.csv").exists() != (artifacts / "ncu.csv.gz").exists() == there
