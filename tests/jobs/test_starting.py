"""A job starts whatever keeps the warm parent from working; what cannot start says why at once; jobs run in
the order in which they were submitted; a worker that gives no sign is said to, and can be cancelled."""

import itertools
import json
import os
import re
import signal
import stat
import time

import pytest
from jobs_tools import ended, state, until, worker_pid

from fusescope.core.doctor import running
from fusescope.core.errors import RunError
from fusescope.core.machine import runtime
from fusescope.jobs import submit
from fusescope.jobs.process import warm_parent
from fusescope.store import folder, library
from fusescope.store.live import signs

pytestmark = pytest.mark.slow


def finished(**spec):
    run = submit.wait(submit.submit("steps", {"steps": ["ok"], **spec}), 60)
    return run, (library.find(run.id) / "log.txt").read_text()


@pytest.fixture
def light(light, tmp_path, monkeypatch):
    """And no folder but this test's for what a user has."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    return light


def state_files(text):
    """A runtime folder in which every warm parent's state file holds this text already."""
    door = warm_parent.Door()
    if isinstance(text, bytes):
        door.state.write_bytes(text)
    else:
        door.state.mkdir()


OBSTACLES = {
    "no folder at all": lambda env: (
        env("FUSESCOPE_RUNTIME", "/proc/x"),
        env("XDG_CACHE_HOME", "/proc/x"),
    ),
    "idle time": lambda env: env("FUSESCOPE_WARM_IDLE_S", "an hour"),
    "answer time": lambda env: env("FUSESCOPE_WARM_ACK_S", "nan"),
    "check time": lambda env: env("FUSESCOPE_WARM_CHECK_S", "-1"),
    "the lock is a folder": lambda env: warm_parent.Door().lock.mkdir(),
    "the log is a folder": lambda env: warm_parent.Door().log.mkdir(),
    "the state file is a folder": lambda env: state_files(None),
    "the socket is a folder": lambda env: (lambda d: (d.home / d.socket_name).mkdir())(warm_parent.Door()),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("obstacle", OBSTACLES)
def test_a_job_starts_cold_where_no_warm_parent_can_be_had(light, monkeypatch, obstacle):
    OBSTACLES[obstacle](monkeypatch.setenv)
    run, log = finished()
    assert run.status == "done" and "started from a cold interpreter: " in log, log
    assert "Traceback" not in log


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "text", [b"", b"[]", b"7", b'{"pid": -1}', b'{"pid": "1"}', b'{"pid": 1e999}', b"\xff", b"[" * 100_000]
)
def test_an_odd_state_file_keeps_no_job_from_starting(light, text):
    state_files(text)
    assert finished()[0].status == "done"


@pytest.mark.long
def test_there_is_one_warm_parent_whatever_changes_nothing(light, monkeypatch):
    def parents():
        found = [json.loads(f.read_text())["pid"] for f in light.glob("user-*/warm-*.json")]
        return [pid for pid in found if not ended(pid)]

    finished()
    first = until(parents, "a warm parent")
    for variable in (
        "CUDA_VISIBLE_DEVICES",
        "TORCH_HOME",
        "PYTHONUNBUFFERED",
        "FUSESCOPE_WARM_CHECK_S",
        "EDITOR",
    ):
        monkeypatch.setenv(variable, "1")
        assert "cold" not in finished()[1]
    assert parents() == first
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # read while torch is loaded
    run, log = finished()
    assert run.status == "done" and "cold" not in log
    until(lambda: ended(first[0]), "the first parent's end")
    assert len(parents()) == 1 != first


def test_what_cannot_start_says_why_at_once(light, tmp_path, monkeypatch):
    monkeypatch.setenv("FUSESCOPE_CANCEL_GRACE_S", "soon")
    run, _ = finished()
    assert run.status == "failed" and "FUSESCOPE_CANCEL_GRACE_S must be a number" in run.reason
    monkeypatch.delenv("FUSESCOPE_CANCEL_GRACE_S")

    monkeypatch.setenv("FUSESCOPE_WARM_IDLE_S", "never")  # cold
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "json.py").write_text("raise ImportError('no disk left for bytecode')")
    monkeypatch.setenv("PYTHONPATH", str(broken))
    begin = time.monotonic()
    run = submit.wait(submit.submit("steps", {"steps": ["ok"]}), 60)
    assert run.status == "interrupted" and time.monotonic() - begin < 10
    assert "never started: ImportError: no disk left for bytecode" in run.reason

    monkeypatch.setattr(warm_parent.sys, "executable", str(tmp_path / "no-python"))
    with pytest.raises(RunError, match="its worker could not be started: No such file"):
        submit.submit("steps", {"steps": ["ok"]})
    reasons = [folder.read(p).reason or "" for p in sorted(library.find(run.id).parent.glob("2*"))]
    assert sum("could not be started" in r for r in reasons) == 1


def test_jobs_run_in_the_order_in_which_they_were_submitted(light):
    ids = [submit.submit("steps", {"steps": ["ok"], "device": "cpu", "pause_s": 0.05}) for _ in range(8)]
    runs = [submit.wait(run_id, 60) for run_id in ids]
    assert [r.status for r in runs] == ["done"] * 8
    assert [r.id for r in sorted(runs, key=lambda r: r.started)] == ids
    assert all(b.started >= a.finished - 0.05 for a, b in itertools.pairwise(runs))


@pytest.mark.parametrize("deaf", [False, True])
def test_a_stopped_worker_is_not_responding_and_can_be_cancelled(light, monkeypatch, deaf):
    monkeypatch.setattr(signs, "_LATE_S", 0.5)
    run_id = submit.submit("steps", {"steps": ["ok", "hang"]})
    path = library.find(run_id)
    until(lambda: folder.records(path), "the first record")
    pid = worker_pid(path)
    assert folder.read(path).reason is None
    os.kill(pid, signal.SIGSTOP)
    run = until(lambda: (r := folder.read(path)).reason and r, "the reader to notice")
    assert run.status == "running" and f"not responding: no sign of its worker, process {pid}" in run.reason
    assert run.reason == run.progress.message
    (child,) = [int(p) for p in open(f"/proc/{pid}/task/{pid}/children").read().split()]
    if deaf:  # it cannot be woken up: something stops it again and again
        monkeypatch.setattr(submit, "_KILL_AFTER_S", 0.0)
        monkeypatch.setattr(submit.stopped, "wake", lambda run: None)
        submit.cancel(run_id)
        assert state(pid) == "T"
        time.sleep(0.01)
    submit.cancel(run_id)
    run = submit.wait(run_id, 30)
    assert run.status == "cancelled" and len(folder.records(path)) == 1
    until(lambda: ended(pid) and ended(child), "the end of both processes")


def test_no_other_process_is_taken_for_the_worker(light):
    """A number in run.json that now belongs to somebody else is not signalled."""
    path = folder.create("steps", {"steps": ["ok"]})
    data = json.loads((path / "run.json").read_text())
    data["worker"] = {"pid": os.getpid(), "host": os.uname().nodename}
    (path / "run.json").write_text(json.dumps(data))
    submit.stopped.end(path)  # or this test would end here
    for pid in (-1, 0, 1, "1", None, 2**40):
        data["worker"]["pid"] = pid
        (path / "run.json").write_text(json.dumps(data))
        submit.stopped.end(path)


def test_the_users_own_folder_is_his_alone(light):
    assert stat.S_IMODE(runtime.private().stat().st_mode) == 0o700


def test_the_doctor_says_what_the_warm_parent_holds(light):
    finished()
    with warm_parent.Door() as door:
        pid = json.loads(door.state.read_text())["pid"]
    (found,) = running.warm_parents()
    assert found.status == "ok" and re.match(rf"process {pid} holds \d+ MiB", found.says)
    assert running.locks().status == "ok"
    light.rename(light.with_name("away"))
    light.write_text("no folder")
    assert running.locks().status == "warn" and "not waited for" in running.locks().says
    light.unlink()
    light.with_name("away").rename(light)
