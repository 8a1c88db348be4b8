"""Waiting for a lock: until it is free, and no longer than was asked for."""

import fcntl
import os
import threading
import time

import pytest

from fusescope.core.machine import locks
from fusescope.store import files


@pytest.fixture
def folder(tmp_path):
    """A function that opens the same folder once more."""
    opened = []

    def open_it():
        opened.append(os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY))
        return opened[-1]

    yield open_it
    for fd in opened:
        os.close(fd)


def test_a_free_lock_is_taken_at_once(folder):
    assert locks.take(folder())


def test_one_that_is_kept_is_not_taken(folder):
    kept, begun = folder(), time.monotonic()
    assert locks.take(kept) and not locks.take(folder(), wait_s=0.05)
    assert time.monotonic() - begun >= 0.05


def test_one_that_becomes_free_meanwhile_is_taken(folder):
    kept = folder()
    locks.take(kept)
    threading.Timer(0.05, fcntl.flock, (kept, fcntl.LOCK_UN)).start()
    assert locks.take(folder(), wait_s=30.0)


def test_a_file_system_without_locks_is_named(tmp_path, monkeypatch):
    def flock(fd, how):
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(files.RunError, match="cannot be locked"):
        files.take_lock(tmp_path)
