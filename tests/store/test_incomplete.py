"""What a run lost since it ended is said: results and samples cut, deleted or changed, packed or not."""

import gzip
import json
import re
import time

import pytest
from make_runs import record

from fusescope.core.errors import RunError
from fusescope.core.records import Record
from fusescope.store import files, folder, library, transfer

LINES = 40


@pytest.fixture
def run(profiles):
    path = folder.create("bench", {"op": "add"})
    writer = folder.Writer(path)
    writer.state("running")
    for n in range(LINES):
        one = Record.from_json(record("add", n, "eager"))
        writer.record(one)
        writer.samples(one.case_key, "eager", "graph", [1.0, 2.0])
    writer.state("done")
    writer.close()
    return path


def pack(path, name):
    (path / f"{name}.gz").write_bytes(gzip.compress((path / name).read_bytes()))
    (path / name).unlink()


def cut(path, name, lines, packed=False):
    text = b"".join((path / name).read_bytes().splitlines(True)[:lines])
    (path / name).write_bytes(text)
    if packed:
        pack(path, name)


@pytest.mark.parametrize("packed", [False, True])
def test_a_whole_run_is_done(run, packed):
    if packed:
        pack(run, "results.jsonl")
        pack(run, "samples.jsonl")
    assert folder.read(run).status == "done" and folder.is_unchanged(run)
    assert len(folder.records(run)) == len(folder.samples(run)) == LINES


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("left", [0, 12, 39])
def test_cut_results_are_incomplete(run, left, packed):
    cut(run, "results.jsonl", left, packed)
    about = folder.read(run)
    assert (about.status, about.reason) == ("incomplete", f"{left} of {LINES} records")
    assert len(folder.records(run)) == left and folder.lacks_records(run)


def test_a_cut_within_a_line_and_deleted_files_are_incomplete(run):
    (run / "results.jsonl").write_bytes((run / "results.jsonl").read_bytes()[:-5])
    assert folder.read(run).reason == "39 of 40 records" and len(folder.records(run)) == 39
    (run / "results.jsonl").unlink()
    (run / "samples.jsonl").unlink()
    assert folder.read(run).reason == "0 of 40 records, 0 of 40 lines of raw samples"
    assert library.runs(status="incomplete")[0][0].id == run.name


def test_the_listing_sees_a_cut_that_leaves_the_folder_as_it_was(run):
    time.sleep(0.12)
    assert library.runs(status="done")[1] == 1
    with open(run / "results.jsonl", "r+b") as f:
        f.truncate(500)
    assert library.runs(status="done")[1] == 0 and library.runs(status="incomplete")[1] == 1


def test_cut_samples_are_incomplete_and_records_are_whole(run):
    cut(run, "samples.jsonl", 3)
    about = folder.read(run)
    assert (about.status, about.reason) == ("incomplete", "3 of 40 lines of raw samples")
    assert len(folder.records(run)) == LINES and not folder.lacks_records(run)


@pytest.mark.parametrize("name", ["results.jsonl", "samples.jsonl"])
def test_changed_figures_are_refused(run, name):
    text = (run / name).read_bytes()
    at = re.search(rb"\d\.\d", text).start()
    (run / name).write_bytes(text[:at] + b"9" + text[at + 1 :])
    with pytest.raises(RunError, match=f"{name} was changed after its run ended"):
        folder.records(run), folder.samples(run)
    if name == "results.jsonl":
        assert len(library.records()) == 0


def test_more_than_was_noted_is_said(run):
    with open(run / "results.jsonl", "ab") as f:
        f.write(json.dumps(record("add", 99, "eager")).encode() + b"\n")
    assert folder.read(run).reason == "the 40 records were changed"


def test_a_failed_run_stays_failed_and_says_what_is_gone(run):
    writer = folder.Writer(run)
    writer.state("failed", "the disk is full")
    writer.close()
    cut(run, "results.jsonl", 5)
    about = folder.read(run)
    assert (about.status, about.reason) == ("failed", "the disk is full; incomplete: 5 of 40 records")


def test_a_resumed_run_notes_its_end_again(run):
    cut(run, "results.jsonl", 5)
    writer = folder.Writer(run)
    writer.state("running")
    assert folder.read(run).status == "running" and len(writer.skip()) == 5
    writer.state("done")
    writer.close()
    assert folder.read(run).status == "done"


def test_an_import_says_what_the_run_lacks(run, tmp_path):
    cut(run, "results.jsonl", 12)
    again = folder.read(library.find(transfer.load(transfer.export(run.name, tmp_path))))
    assert (again.status, again.reason, again.imported) == ("incomplete", "12 of 40 records", True)


@pytest.mark.parametrize("created", [4e9, 1e11])
def test_a_run_queued_in_the_future_without_a_worker_is_interrupted(profiles, created):
    path = folder.create("bench", {"op": "add"})
    data = files.read_json(path / "run.json")
    files.write_json(path / "run.json", data | {"created": created})
    assert folder.read(path).status == "interrupted"


@pytest.mark.sample(1, "line3")
@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    [b"{}\n", b"\n", b'{"case_key":"","impl":"","mode":"","ms":[]}\n', b"[" * 50 + b"]" * 50 + b"\n", b"1"],
)
def test_a_packed_bomb_is_refused_at_once(run, line):
    (run / "samples.jsonl").unlink()
    packed = run / "samples.jsonl.gz"
    packed.write_bytes(gzip.compress(line * (8_000_000 // len(line))))
    begin = time.process_time()
    with pytest.raises(RunError):
        folder.samples(run)
    assert folder.read(run).status in ("incomplete", "done")
    assert time.process_time() - begin < 4
