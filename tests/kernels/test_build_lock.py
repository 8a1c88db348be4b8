"""One builder at a time, and a build that is stopped leaves nothing running."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from fusescope.core.errors import Cancelled
from fusescope.core.machine import toolchain
from fusescope.kernels import report
from fusescope.kernels.build import build

pytestmark = pytest.mark.slow

HOLD = """
import fcntl, os, sys, time
file = open(sys.argv[1], "a+")
fcntl.flock(file, fcntl.LOCK_EX)
file.truncate(0); file.write(str(os.getpid())); file.flush()
print("held", flush=True)
time.sleep(60)
"""


def hold(file: Path) -> subprocess.Popen:
    """Another process that holds the build folder."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(file)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    return process


def until(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.02)


def test_a_second_builder_waits_names_the_first_and_then_reuses(project):
    folder = report.folder_of(toolchain.detect())
    holder, results = hold(folder / "lock"), []
    thread = threading.Thread(target=lambda: results.append(build(units=("cpu",), log=project.log)))
    thread.start()
    until(lambda: f"waiting for the build of process {holder.pid} to finish" in project.text)
    assert not results
    holder.kill()
    holder.wait()
    thread.join(20)
    assert results[0].reused


@pytest.mark.long
def test_two_builders_at_once_compile_everything_once(project):
    code = (
        "from fusescope.kernels.build import build; r = build(units=('cpu',)); assert r.ok\n"
        "print('compiled', r.compiled)"
    )
    (report.folder_of(toolchain.detect()) / "report.json").unlink()
    for file in report.folder_of(toolchain.detect()).glob("*.o"):
        file.unlink()
    both = [
        subprocess.Popen(
            [sys.executable, "-c", code], env=project.environment(), stdout=subprocess.PIPE, text=True
        )
        for _ in "12"
    ]
    counts = sorted(int(p.communicate(timeout=60)[0].rpartition("compiled ")[2]) for p in both)
    assert [p.returncode for p in both] == [0, 0] and counts == [0, 2]


def test_waiting_can_be_cancelled(project):
    holder = hold(report.folder_of(toolchain.detect()) / "lock")
    with pytest.raises(Cancelled, match="while it waited"):
        build(units=("cpu",), log=project.log, cancelled=lambda: "waiting" in project.text)
    holder.kill()
    holder.wait()


def test_a_lock_file_of_a_dead_process_blocks_nobody(project):
    folder = report.folder_of(toolchain.detect())
    dead = hold(folder / "lock")
    dead.kill()
    dead.wait()
    assert (folder / "lock").read_text() == str(dead.pid)
    assert build(units=("cpu",), log=project.log).reused
    assert "waiting" not in project.text and (folder / "lock").read_text() == ""


def test_cancel_ends_the_compilers_and_frees_the_lock(project, monkeypatch):
    marker = project.build.parent / "compiler.pid"
    slow = project.program(
        "g++", f'case "$1" in --version) exec g++ --version;; esac\necho $$ > "{marker}"\nsleep 60'
    )
    monkeypatch.setenv("CXX", str(slow))
    project.edit(project.add / "cpu.cpp", "n > 16384", "n > 16385")
    with pytest.raises(Cancelled):
        build(units=("cpu",), log=project.log, cancelled=marker.is_file)
    pid = int(marker.read_text())
    until(lambda: not Path(f"/proc/{pid}").exists(), 5)
    folder = report.folder_of(toolchain.detect())
    with open(folder / "lock") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert not list(folder.glob("*.failed"))  # stopped is not failed
    monkeypatch.delenv("CXX")
    assert build(units=("cpu",), log=project.log).ok
    assert not list(folder.glob("*.part")) and os.getpid() != pid


@pytest.mark.skipif(toolchain.detect().nvcc is None, reason="no nvcc on this machine")
def test_figures_survive_a_builder_that_was_killed(gpu_project):
    build(archs=["sm_80"], log=gpu_project.log)
    before = report.resources("add", "v2_vectorised", "sm_80")
    for sidecar in report.folder_of(toolchain.detect()).glob("add-v2_vectorised-*.json"):
        sidecar.unlink()  # as if it had been killed after the compiler and before writing them
    assert before and report.resources("add", "v2_vectorised", "sm_80") == before


@pytest.mark.long
@pytest.mark.skipif(toolchain.detect().nvcc is None, reason="no nvcc on this machine")
def test_a_cuda_binding_may_be_all_that_is_missing(gpu_project):
    (binding,) = report.folder_of(toolchain.detect()).glob("add-binding-cuda-*.o")
    binding.unlink()
    result = build(archs=["sm_80"], log=gpu_project.log)
    assert result.ok and result.compiled == 1, gpu_project.text


def test_a_source_saved_while_it_compiles_is_compiled_again(project, monkeypatch):
    source = project.add / "cpu.cpp"
    project.edit(source, "n > 16384", "n > 16385")
    script = f"sed -i s/16385/16386/ '{source}'"
    eager = project.program("g++", f'case "$*" in *cpu.cpp*) {script};; esac\nexec g++ "$@"')
    monkeypatch.setenv("CXX", str(eager))
    result = build(units=("cpu",), log=project.log)
    assert result.ok and "edited while they were compiled" in project.text
    assert {v.key for v in result.variants} == {v.key for v in report.latest().variants}
