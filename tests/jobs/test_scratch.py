"""Temporary folders go with the process that made them, also a killed one; nobody else's are touched."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from fusescope.core import paths
from fusescope.jobs.process import scratch

HOLD = """
from fusescope.jobs.process import scratch
with scratch.folder(scratch.CLUSTER) as home:
    print(home, flush=True)
    input()
"""


@pytest.fixture(autouse=True)
def temporary(monkeypatch):
    """A temporary folder of this test's own, whose name is as short as the system's."""
    with tempfile.TemporaryDirectory(prefix="t-", dir="/tmp") as home:
        monkeypatch.setattr("tempfile.tempdir", home)
        yield Path(home)


def test_a_folder_ends_with_its_block():
    with scratch.folder(scratch.RANKS) as home:
        (home / "words").touch()
        scratch.tidy()
        assert (home / "words").exists(), "what is held stays"
    assert not home.exists()


def test_what_a_killed_process_left_is_removed_and_what_lives_stays(temporary):
    env = os.environ | {"TMPDIR": str(temporary), "PYTHONPATH": paths.python_path()}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    others = [subprocess.Popen([sys.executable, "-c", HOLD], env=env, **pipes) for _ in range(2)]
    try:
        killed, living = (temporary / process.stdout.readline().strip() for process in others)
        (killed / "inside").mkdir()
        others[0].send_signal(signal.SIGKILL)
        others[0].wait()
        with scratch.folder(scratch.CLUSTER):
            assert not killed.exists() and living.exists()
    finally:
        for process in others:
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()


def test_links_files_and_what_is_others_stay(temporary, monkeypatch):
    target = temporary / "precious"
    target.mkdir()
    link, file, other = (temporary / f"{scratch.CLUSTER}{name}" for name in ("link", "file", "other"))
    link.symlink_to(target)
    file.touch()
    scratch.tidy()
    assert link.is_symlink() and target.exists() and file.exists()
    other.mkdir()
    monkeypatch.setattr(os, "getuid", lambda: other.stat().st_uid + 1)
    scratch.tidy()
    assert other.exists()
