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
from fusescope.store import folder

SCRIPTS = paths.ROOT / "scripts"
RECORDED = paths.ROOT / "profiles" / "recorded"
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


def test_the_entries_are_the_profiles_that_ship():
    """Each entry was recorded once, and each recorded profile has an entry."""
    folders = (p for kind in ("trace", "ncu") for p in RECORDED.glob(f"*-{kind}-*"))
    runs = [folder.read(path) for path in folders]
    assert len(runs) == len(ENTRIES) == len({e["title"] for e in ENTRIES})
    for entry in ENTRIES:
        assert [_is_of(run, entry) for run in runs].count(True) == 1, entry["title"]


def _is_of(run, entry):
    case, rest = entry["spec"]["case"], {k: v for k, v in entry["spec"].items() if k != "case"}
    return (
        run.kind == entry["kind"]
        and all(run.spec.get(k) == v for k, v in rest.items())
        and case.items() <= run.spec["case"].items()
    )


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
