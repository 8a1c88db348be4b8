"""A run folder is whole at every moment, and what is torn, newer or lost is said in a sentence."""

import gzip
import json
import os
import re
import subprocess
import sys

import pytest
from make_runs import record as record_json

from fusescope.core import paths
from fusescope.core.errors import Cancelled, RunError
from fusescope.core.records import Record
from fusescope.core.schema.lines import Lines, of_record, of_sample
from fusescope.store import files, folder


def record(n=0, impl="eager"):
    return Record.from_json(record_json("add", n, impl))


@pytest.fixture
def run(profiles):
    return folder.create("bench", {"op": "add"}, title="first try")


def finished(profiles, records=2):
    path = folder.create("bench", {"op": "add"})
    writer = folder.Writer(path)
    for n in range(records):
        writer.record(record(n))
    writer.state("done")
    writer.close()
    return path


def test_a_new_run_is_queued_and_its_name_says_when_and_what(run):
    assert re.fullmatch(r"\d{8}-\d{6}-bench-[0-9a-f]{6}", run.name)
    read = folder.read(run)
    assert (read.id, read.kind, read.status, read.title, read.spec["op"]) == (
        run.name,
        "bench",
        "queued",
        "first try",
        "add",
    )
    assert read.created and not read.recorded and not folder.alive(run)
    with pytest.raises(ValueError, match="a job kind is lower-case"):
        folder.create("../bench", {})


def test_what_the_writer_writes_is_what_readers_read(run):
    writer = folder.Writer(run)
    assert folder.alive(run)
    writer.state("running")
    writer.record(record(1))
    writer.samples(record(1).case_key, "eager", "graph", [0.5, 0.25], [{"sm_mhz": 1980}])
    writer.progress(1, 4, "case 1", 12.5)
    writer.environment(device_name="NVIDIA H200")
    writer.log("a line\n")
    writer.artifact("generated/a.py").write_text("pass")
    writer.flush_progress(now=True)
    read = folder.read(run)
    assert (read.status, read.device_name, read.progress.eta_s) == ("running", "NVIDIA H200", 12.5)
    assert folder.records(run) == [record(1)]
    assert folder.samples(run)[0]["ms"] == [0.5, 0.25]
    assert writer.skip() == {(record(1).case_key, "eager")}
    writer.state("done")
    writer.close()
    assert folder.read(run).status == "done" and folder.read(run).finished
    assert not folder.alive(run)
    assert sorted(p.name for p in run.iterdir()) == [
        "artifacts",
        "log.txt",
        "notes.json",
        "results.jsonl",
        "run.json",
        "samples.jsonl",
    ]


def test_records_booked_together_lie_as_those_booked_one_by_one(run):
    writer, other = folder.Writer(run), folder.Writer(folder.create("bench", {"op": "add"}))
    lines = [
        {"case_key": record(n).case_key, "impl": "eager", "mode": "graph", "milliseconds": [n, 0.25]}
        for n in (1, 2)
    ]
    found = [(record(n), [of_sample(**line)]) for n, line in zip((1, 2), lines)]
    writer.book([Lines(r.case_key, r.impl, r.status, of_record(r), samples) for r, samples in found])
    for n, line in zip((1, 2), lines):
        other.samples(**line)
        other.record(record(n))
    for name in ("results.jsonl", "samples.jsonl"):
        assert (run / name).read_bytes() == (other.path / name).read_bytes()
    assert writer.statuses() == other.statuses() and len(writer.skip()) == 2
    writer.close()
    other.close()


def test_run_json_is_indented_throughout(run):
    """Its specification is encoded once and put in as text."""
    writer = folder.Writer(run)
    writer.environment(lines=["a\nb"], nested={"deep": [1, {"x": None}], "none": []})
    text = (run / "run.json").read_text()
    assert text == json.dumps(json.loads(text), indent=1) + "\n" and '"op": "add"' in text
    writer.close()


@pytest.mark.slow
def test_only_one_writer(run):
    writer = folder.Writer(run)
    code = f"from fusescope.store import folder; from pathlib import Path; folder.Writer(Path({str(run)!r}))"
    second = subprocess.run([sys.executable, "-c", code], cwd=paths.ROOT, capture_output=True, text=True)
    assert "held by another worker" in second.stderr
    writer.close()


def test_cancel_is_a_file_that_the_writer_sees(run):
    writer = folder.Writer(run)
    writer.check()
    folder.request_cancel(run)
    with pytest.raises(Cancelled):
        writer.check()
    writer.close()


@pytest.mark.parametrize("torn", ['{"op": "add", "impl"', '{"op": "add"', "\0\0\0\0", '{"op": "ad\\'])
def test_a_torn_last_line_is_tolerated_and_mended_by_the_next_writer(profiles, torn):
    path = finished(profiles)
    with open(path / "results.jsonl", "a") as f:
        f.write(torn)
    assert [r.case["n"] for r in folder.records(path)] == [0, 1]
    writer = folder.Writer(path)
    writer.record(record(2))
    writer.close()
    assert [r.case["n"] for r in folder.records(path)] == [0, 1, 2]


def test_a_last_line_that_only_lacks_its_newline_is_kept(profiles):
    path = finished(profiles)
    text = (path / "results.jsonl").read_text()
    (path / "results.jsonl").write_text(text.rstrip("\n"))
    assert len(folder.records(path)) == 2
    folder.Writer(path).close()
    assert (path / "results.jsonl").read_text() == text


def test_a_torn_line_in_the_middle_is_named(profiles):
    path = finished(profiles, 1)
    text = (path / "results.jsonl").read_text()
    (path / "results.jsonl").write_text(text + '{"op": \n' + text)
    with pytest.raises(RunError, match=r"results.jsonl: line 2 is not JSON"):
        folder.records(path)
    (path / "results.jsonl").write_text(text + '{"op": "add"}\n')
    with pytest.raises(RunError, match=r"line 2 is not a record"):
        folder.records(path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "torn or not JSON"),
        ('{"id": "x", "kind', "torn or not JSON"),
        ("[1, 2]", "holds list, not a JSON object"),
        ("[" * 100_000, "torn or not JSON"),
        ('{"schema": 1, "status": "done"}', "is not that of a run: kind is missing"),
        ('{"schema": 7, "id": "x"}', r"newer version \(run schema 7, this one reads up to 1\); update"),
        ('{"schema": "x", "id": "x"}', "newer version"),
    ],
)
def test_an_unreadable_run_json_gets_one_clear_sentence(profiles, text, says):
    path = finished(profiles)
    (path / "run.json").write_text(text)
    with pytest.raises(RunError, match=says):
        folder.read(path)


def test_no_run_folder_at_all(tmp_path):
    with pytest.raises(RunError, match=r"is not a run folder: it has no run\.json"):
        folder.read(tmp_path)
    with pytest.raises(RunError, match="is not a run folder"):
        folder.Writer(tmp_path)


def test_notes_are_peoples_and_change_nothing_else(profiles):
    path = finished(profiles)
    before = (path / "run.json").read_bytes()
    folder.write_notes(path, title="for the paper", tags=["best", "h200"])
    folder.write_notes(path, notes="after the fix")
    run = folder.read(path)
    assert (run.title, run.tags, run.notes) == ("for the paper", ("best", "h200"), "after the fix")
    assert (path / "run.json").read_bytes() == before
    (path / "notes.json").write_text("{torn")
    assert folder.read(path).title == ""  # the measurement is not lost with the words
    folder.write_notes(path, title="again")
    assert folder.read(path).title == "again"


def test_recorded_runs_are_read_only_and_may_be_packed(profiles):
    path = finished(profiles)
    home = profiles / "recorded"
    home.mkdir()
    os.rename(path, home / path.name)
    path = home / path.name
    for name in ("results.jsonl", "samples.jsonl"):
        (path / f"{name}.gz").write_bytes(gzip.compress((path / name).read_bytes()))
        (path / name).unlink()
    assert folder.read(path).recorded and len(folder.records(path)) == 2
    for change in (lambda: folder.write_notes(path, title="x"), lambda: folder.request_cancel(path)):
        with pytest.raises(RunError, match="recorded run"):
            change()
    data = json.loads((path / "run.json").read_text()) | {"status": "running"}
    (path / "run.json").write_text(json.dumps(data))
    before = (path / "run.json").read_bytes()
    assert folder.read(path).status == "interrupted"
    assert (path / "run.json").read_bytes() == before
    (path / "results.jsonl.gz").write_bytes((path / "results.jsonl.gz").read_bytes()[:40])
    with pytest.raises(RunError, match="cannot be read"):
        folder.records(path)


def test_a_writer_whose_run_was_taken_over_writes_nothing(run):
    writer = folder.Writer(run)
    writer.state("running")
    files.write_json(run / "run.json", json.loads((run / "run.json").read_text()))  # somebody else's hand
    results = (run / "results.jsonl").read_bytes()
    for write in (
        lambda: writer.record(record()),
        lambda: writer.environment(a=1),
        lambda: writer.state("done"),
    ):
        with pytest.raises(RunError, match="taken over"):
            write()
    assert (run / "results.jsonl").read_bytes() == results
    writer.close()


@pytest.mark.parametrize("name", ["../run.json", "/etc/passwd", "a/../../run.json", "", "."])
def test_artifacts_stay_under_artifacts(run, name):
    writer = folder.Writer(run)
    with pytest.raises(ValueError, match="must be under artifacts/"):
        writer.artifact(name)
    writer.close()


def test_a_line_made_to_exhaust_memory_is_refused(profiles, monkeypatch):
    path = finished(profiles)
    (path / "results.jsonl").unlink()
    with gzip.open(path / "results.jsonl.gz", "wb", compresslevel=1) as f:
        for _ in range(65):
            f.write(b" " * (1 << 20))
    with pytest.raises(RunError, match="larger than any run's"):
        folder.records(path)


@pytest.mark.long
def test_readers_never_see_half_a_run_json(run):
    writer = folder.Writer(run)
    code = (
        "import sys, time; from pathlib import Path; from fusescope.store import folder\n"
        "path, seen, end = Path(sys.argv[1]), 0, time.monotonic() + 1.0\n"
        "while time.monotonic() < end: folder.read(path); seen += 1\n"
        "print(seen)"
    )
    reader = subprocess.Popen(
        [sys.executable, "-c", code, str(run)], cwd=paths.ROOT, stdout=subprocess.PIPE, text=True
    )
    n = 0
    while reader.poll() is None:
        writer.environment(n=n, filler="x" * (n % 20_000))
        n += 1
    assert reader.returncode == 0 and int(reader.stdout.read()) > 0 and n > 10
    reader.stdout.close()
    writer.close()


def test_a_writer_that_cannot_begin_leaves_the_folder_free(profiles):
    path = finished(profiles, 1)
    text = (path / "results.jsonl").read_text()
    (path / "results.jsonl").write_text("garbage\n" + text)
    with pytest.raises(RunError, match="line 1 is not JSON"):
        folder.Writer(path)
    assert not folder.alive(path)
