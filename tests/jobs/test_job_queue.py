"""One job at a time on a device, in order, seen by those who wait; the dead hold nobody up."""

import os
import stat
import subprocess
import sys

import pytest
from jobs_tools import until

from fusescope.core import paths
from fusescope.core.machine import environment, runtime
from fusescope.core.reporter import Collect
from fusescope.jobs import submit, worker
from fusescope.jobs.process import body, gpu_lock
from fusescope.store import folder, library


@pytest.mark.slow
def test_two_jobs_on_one_device_take_turns_and_the_second_sees_its_place(home):
    first = submit.submit("steps", {"steps": ["hang"], "device": "cpu"}, title="the one in front")
    until(lambda: folder.read(library.find(first)).status == "running", "the first job to run")
    second = submit.submit("steps", {"steps": ["ok"], "device": "cpu"}, title="waits")
    waiting = until(
        lambda: [
            j for j in submit.queue() if j["id"] == second and j["place"] and "now" in j["progress"].message
        ],
        "the second job's place, and whom it waits for",
    )[0]
    assert (waiting["place"], waiting["device"], waiting["status"], waiting["title"]) == (
        1,
        "cpu",
        "queued",
        "waits",
    )
    assert waiting["progress"].message == "queued on cpu, 1 ahead; now the one in front"
    third = submit.submit("steps", {"steps": ["ok"], "device": "cpu"})
    until(
        lambda: [j["id"] for j in submit.queue() if j["place"] is not None] == [first, second, third],
        "all three in order",
    )
    assert gpu_lock.holder("cpu")["run"] == first
    submit.cancel(third)  # in the queue
    assert submit.wait(third, 30).status == "cancelled"
    assert folder.records(library.find(third)) == []
    submit.cancel(first)
    assert submit.wait(second, 30).status == "done"
    one, two = folder.read(library.find(first)), folder.read(library.find(second))
    assert two.started >= one.finished
    until(lambda: gpu_lock.holder("cpu") is None, "its process to leave the device, after its last word")


@pytest.mark.slow
def test_jobs_without_a_device_do_not_wait(home):
    held = submit.submit("steps", {"steps": ["hang"], "device": "cpu"})
    until(lambda: folder.read(library.find(held)).status == "running", "the device to be held")
    free = submit.submit("steps", {"steps": ["ok"]})
    assert submit.wait(free, 30).status == "done"
    submit.cancel(held)
    assert submit.wait(held, 30).status == "cancelled"


def test_a_dead_process_holds_neither_the_device_nor_a_place(own_runtime):
    code = (
        "import os, sys; from fusescope.jobs.process.gpu_lock import Ticket\n"
        "a, b = Ticket('GPU-0000', 'run-a'), Ticket('GPU-0000', 'run-b')\n"
        "print(a.advance(), b.advance(), flush=True); os.kill(os.getpid(), 9)"
    )
    out = subprocess.run([sys.executable, "-c", code], cwd=paths.ROOT, capture_output=True, text=True).stdout
    assert out.split() == ["0", "1"]
    assert len(list((own_runtime / "GPU-0000.queue").iterdir())) == 2  # what the dead left
    mine = gpu_lock.Ticket("GPU-0000", "mine")
    assert mine.advance() == 0
    later = gpu_lock.Ticket("GPU-0000", "later")
    last = gpu_lock.Ticket("GPU-0000", "last")
    assert (later.advance(), last.advance()) == (1, 2)
    mine.close()
    assert (last.advance(), later.advance(), last.advance()) == (1, 0, 1)
    later.close()
    last.close()


def test_lock_files_are_shared_among_users(own_runtime):
    mask = os.umask(0o077)
    try:
        ticket = gpu_lock.Ticket("GPU-1111", "mine")
        ticket.advance()
    finally:
        os.umask(mask)
    assert stat.S_IMODE((own_runtime / "GPU-1111.lock").stat().st_mode) == 0o644  # to be locked, not written
    assert stat.S_IMODE((own_runtime / "GPU-1111.queue").stat().st_mode) == 0o1777
    assert stat.S_IMODE(runtime.private().stat().st_mode) == 0o700
    ticket.close()


def test_others_on_the_gpu_are_named_and_marked(monkeypatch):
    gpu = {
        "uuid": "GPU-1",
        "name": "NVIDIA H200",
        "processes": [{"pid": 4242, "name": "python3", "memory_bytes": 1 << 30}],
    }
    monkeypatch.setattr(environment, "gpus", lambda: [gpu | {"uuid": "GPU-0"}, gpu])
    reporter = Collect()
    body._say_others(reporter, "GPU-1")
    assert reporter.facts["others_on_gpu"] == gpu["processes"]
    assert "NVIDIA H200 is also used by python3 (process 4242)" in reporter.steps[-1][2]
    alone = Collect()
    monkeypatch.setattr(
        environment, "gpus", lambda: [gpu | {"processes": [{"pid": os.getpid(), "name": "me"}]}]
    )
    body._say_others(alone, "GPU-1")
    assert alone.facts["others_on_gpu"] == [] and alone.steps == []


@pytest.mark.parametrize(
    ("holds", "says"),
    [
        (None, "another job"),
        ({"run": None, "user": None, "pid": None}, "another job"),
        ({"run": "20260101-000000-bench-abcdef", "user": "ann", "pid": 7}, "a job of ann, process 7"),
    ],
)
def test_what_has_the_device_and_cannot_be_read_here_is_told_by_its_process(home, holds, says):
    assert worker._named(holds) == says


def test_what_has_the_device_is_told_by_its_title(home):
    run = folder.create("steps", {"steps": ["ok"]}, "softmax, 3 implementations").name
    mine = gpu_lock.user(os.getuid())
    assert worker._named({"run": run, "user": mine, "pid": 7}) == "softmax, 3 implementations"
    assert worker._named({"run": run, "user": "ann", "pid": 7}) == "softmax, 3 implementations, of ann"
