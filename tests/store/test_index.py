"""The index among many processes, and where it cannot be kept: queries are answered all the same."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from make_runs import make

from fusescope.core import paths
from fusescope.core.errors import RunError
from fusescope.store import folder, library, transfer
from fusescope.store.index import database, disk
from fusescope.store.index import records as index_records
from fusescope.store.index import runs as index_runs

WRITER = """
import itertools, sys
from fusescope.store import folder, library
for n in itertools.count():
    run = library.find(sys.argv[1])
    folder.write_notes(run, title=str(n))
    library.runs(); library.records()
"""


@pytest.fixture
def runs(profiles):
    make(profiles, 30, 10)
    return profiles


def python(code, *words):
    env = os.environ | {"PYTHONPATH": paths.python_path()}
    return subprocess.Popen([sys.executable, "-c", code, *words], env=env)


def names(home):
    return sorted(p.name for p in home.iterdir() if not p.name.startswith("."))


@pytest.mark.long
def test_no_query_fails_while_two_processes_replace_the_index(runs, monkeypatch):
    monkeypatch.setattr(index_records, "BATCHES", 3)
    writers = [python(WRITER, name) for name in names(runs)[:2]]
    try:
        end = time.monotonic() + 4
        while time.monotonic() < end:
            assert library.runs(limit=5)[1] == 30
            assert len(library.records()) == 300
        assert all(w.poll() is None for w in writers)
    finally:
        for w in writers:
            w.kill()
            w.wait()


@pytest.mark.long
def test_no_query_fails_among_threads(runs):
    failed = []

    def look(n):
        try:
            for k in range(5):
                folder.write_notes(library.find(names(runs)[n]), title=f"{n} {k}")
                assert library.runs()[1] == 30 and len(library.records()) == 300
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=look, args=(n,)) for n in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failed


@pytest.mark.slow
def test_a_stopped_process_that_holds_the_lock_stops_nobody(runs, monkeypatch):
    monkeypatch.setattr(disk, "_PATIENCE_S", 0.2)
    library.records()
    code = "import fcntl, sys, time; f = open(sys.argv[1]); fcntl.flock(f, fcntl.LOCK_EX); "
    code += "open(sys.argv[1] + '.held', 'w').close(); time.sleep(60)"
    lock = disk.place() / "lock"
    holder = python(code, str(lock))
    try:
        while not Path(f"{lock}.held").exists():
            time.sleep(0.01)
        holder.send_signal(signal.SIGSTOP)
        assert len(library.records()) == 300 and library.runs()[1] == 30
    finally:
        holder.kill()
        holder.wait()


def test_a_batch_that_is_read_is_not_dropped(runs):
    there = index_runs.folders()
    with database.connect() as connection, index_records.source(connection, there) as (source, values):
        shutil.rmtree(runs / names(runs)[0])
        assert len(library.records()) == 290
        assert connection.execute(f"SELECT count(*) FROM ({source})", values).fetchall() == [(300,)]


@pytest.mark.slow
@pytest.mark.parametrize("damage", [b"PAR1 torn", b""])
def test_a_damaged_batch_is_made_again(runs, damage):
    library.records()
    (batch,) = disk.place().glob("records-*.parquet")
    batch.write_bytes(damage)
    assert len(library.records()) == 300


def test_flipped_bytes_of_the_index_raise_nothing_raw(runs):
    library.records()
    for file in disk.place().glob("*.parquet"):
        data = bytearray(file.read_bytes())
        for at in range(0, len(data), 97):
            data[at] ^= 0xFF
        file.write_bytes(data)
    assert len(library.records()) == 300 and library.runs()[1] == 30


def test_where_nothing_can_be_kept_everything_is_listed_filtered_and_deleted(runs, monkeypatch):
    monkeypatch.setattr(disk, "replace", lambda file, write: False)  # as on a full disk
    assert library.runs(op="gemm", limit=100)[1] == 8
    assert len(library.records(op="gemm", impl="sdpa")) == 16
    transfer.delete(names(runs)[0])
    assert library.runs()[1] == 29 and len(library.records()) == 290
    assert not list(disk.place().glob("*.parquet"))


def test_runs_that_may_only_be_read_are_indexed_elsewhere(runs, monkeypatch, tmp_path):
    monkeypatch.setenv("FUSESCOPE_RUNTIME", str(tmp_path / "runtime"))
    access = os.access
    monkeypatch.setattr(
        disk.os,
        "access",
        lambda at, how: how != os.W_OK and access(at, how) if at == runs else access(at, how),
    )
    assert library.runs(op="gemm", limit=100)[1] == 8
    assert (tmp_path / "runtime") in disk.place().parents and list(disk.place().glob("*.parquet"))
    assert not (runs / ".index").exists()


def test_what_duckdb_and_arrow_raise_is_one_sentence():
    import pyarrow as pa

    for fault in (lambda c: c.execute("SELEC 1"), lambda c: pa.array([1, "x"])):
        with pytest.raises(RunError, match=r"^the query could not be answered"), database.connect() as c:
            fault(c)


def test_the_state_is_the_same_until_a_run_changes_and_none_while_one_is_live(runs):
    time.sleep(2 * index_runs.SETTLED_NS / 1e9)
    first = library.state()
    assert first is not None and library.state() == first
    transfer.delete(names(runs)[0])
    assert library.state() not in (None, first)
    last = library.state()
    folder.write_notes(runs / names(runs)[0], notes="seen again")
    assert library.state() not in (None, last)
    folder.create("bench", {"op": "add"})
    assert library.state() is None
