"""A disk that fills up in the middle: a clear sentence, the run marked failed, everything finished still
there."""

import errno
import os
import subprocess

import pytest
from make_runs import make
from make_runs import record as record_json

from fusescope import cli
from fusescope.core.errors import RunError
from fusescope.core.records import Record
from fusescope.store import folder, library, transfer


@pytest.fixture
def tiny_disk(tmp_path, monkeypatch):
    """profiles/ on a file system of 1 MiB."""
    where = tmp_path / "tiny"
    where.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(where)], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"a tiny tmpfs cannot be mounted here (needs root): {mounted.stderr.strip()}")
    monkeypatch.setenv("FUSESCOPE_PROFILES", str(where / "profiles"))
    yield where / "profiles"
    subprocess.run(["umount", "-l", str(where)], check=True)


def record(n):
    return Record.from_json(record_json("add", n, "eager"))


def fill(home):
    """Take all the space there is."""
    with open(home / ".filler", "wb", buffering=0) as f:
        try:
            while f.write(b"x" * 4096):
                pass
        except OSError as e:
            assert e.errno == errno.ENOSPC


def test_a_full_disk_fails_the_run_clearly_and_loses_nothing(tiny_disk):
    other = folder.create("bench", {"op": "gemm"})
    path = folder.create("bench", {"op": "add"})
    writer = folder.Writer(path)
    writer.state("running")
    for n in range(3):
        writer.record(record(n))
    fill(tiny_disk)
    kept = 3
    with pytest.raises(RunError, match=r"the disk that holds .* is full; free some space, then resume"):
        for n in range(3, 3000):
            writer.record(record(n))
            kept += 1
    writer.state("failed", "the disk is full")
    writer.close()
    run = folder.read(path)
    assert (run.status, run.reason) == ("failed", "the disk is full")
    assert [r.case["n"] for r in folder.records(path)] == list(range(kept))
    assert (
        (path / "results.jsonl").read_bytes().endswith(b"\n")
    )  # the line that did not fit was taken back whole
    assert folder.read(other).spec["op"] == "gemm"


def test_no_half_made_run_stays_behind_on_a_full_disk(tiny_disk):
    folder.create("bench", {"op": "add"})
    fill(tiny_disk)
    before = sorted(os.listdir(tiny_disk))
    with pytest.raises(RunError, match="is full"):
        folder.create("bench", {"op": "add", "filler": "x" * 8192})
    assert sorted(os.listdir(tiny_disk)) == before


@pytest.mark.slow
@pytest.mark.parametrize("indexed", [False, True])
def test_on_a_full_disk_everything_is_listed_and_deleted(tiny_disk, indexed, capsys):
    make(tiny_disk, 8, 5)
    if indexed:
        library.runs(), library.records()
        folder.write_notes(next(tiny_disk.glob("2*")), title="changed since")
    fill(tiny_disk)
    assert library.runs()[1] == 8 and len(library.records()) == 40 and library.broken() == []
    assert library.runs(op="gemm")[1] == 2 and len(library.records(impl="sdpa")) == 8
    runs = [r.id for r in library.runs()[0]]
    with pytest.raises(RunError, match=rf"disk that holds {tiny_disk}.* is full.*free some space") as full:
        folder.write_notes(library.find(runs[0]), notes="x" * 10_000)
    assert f"mounted at {tiny_disk.parent}" in str(full.value)
    assert cli.main(["runs", "list"]) == 0 and runs[3] in capsys.readouterr().out
    assert cli.main(["runs", "delete", *runs[:4]]) == 0
    transfer.delete(runs[4])
    assert library.runs()[1] == 3 and len(library.records()) == 15


def test_a_disk_that_cannot_be_written_is_said(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("FUSESCOPE_PROFILES", str(tmp_path / "file"))
    with pytest.raises(RunError, match="cannot be written"):
        folder.create("bench", {})
