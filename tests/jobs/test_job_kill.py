"""Killed workers, submitters and machines: no finished record is lost, the next reader says what happened,
resume goes on."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter

import pytest
from jobs_tools import ended, until, worker_pid

from fusescope.core import paths
from fusescope.jobs import submit
from fusescope.store import folder, library

pytestmark = pytest.mark.slow


@pytest.mark.sample(1)
@pytest.mark.parametrize("seed", range(4))
def test_a_worker_killed_at_a_random_moment_loses_no_finished_record(home, tmp_path, seed):
    ledger, steps = tmp_path / "ledger", 12
    run_id = submit.submit("steps", {"steps": ["ok"] * steps, "pause_s": 0.03, "ledger": str(ledger)})
    path = library.find(run_id)
    pid = worker_pid(path)
    time.sleep(random.Random(seed).uniform(0.0, 0.4))
    os.kill(pid, signal.SIGKILL)
    until(lambda: not folder.alive(path), "the lock's end")
    run = folder.read(path)
    assert run.status == "interrupted" and "resume" in run.reason
    assert "interrupted" in (path / "run.json").read_text()  # the reader wrote it down
    time.sleep(0.1)
    finished = [r.case["n"] for r in folder.records(path)]
    begun = Counter(int(n) for n in ledger.read_text().split()) if ledger.exists() else Counter()
    assert len(begun) - len(finished) in (0, 1)  # at most the one in hand is not there
    time.sleep(0.1)
    assert begun == (
        Counter(int(n) for n in ledger.read_text().split()) if ledger.exists() else Counter()
    )  # the body died too

    submit.resume(run_id)
    assert submit.wait(run_id, 60).status == "done"
    assert [r.case["n"] for r in folder.records(path)] == list(range(steps))
    again = Counter(int(n) for n in ledger.read_text().split())
    assert all(again[n] == begun[n] for n in finished)  # measured once
    assert sum(again.values()) <= steps + 1


def test_a_killed_body_is_a_crash_of_what_it_did(home):
    run_id = submit.submit("steps", {"steps": ["ok", "hang", "ok"]})
    path = library.find(run_id)
    until(lambda: len(folder.records(path)) == 1, "the first record")
    worker = worker_pid(path)
    time.sleep(0.1)
    (body,) = [int(p) for p in open(f"/proc/{worker}/task/{worker}/children").read().split()]
    os.kill(body, signal.SIGKILL)
    assert submit.wait(run_id, 30).status == "done"
    assert [r.status for r in folder.records(path)] == ["ok", "crashed", "ok"]
    assert "SIGKILL" in folder.records(path)[1].reason


def test_a_worker_told_to_stop_says_so(home):
    run_id = submit.submit("steps", {"steps": ["ok", "hang"]})
    path = library.find(run_id)
    until(lambda: folder.records(path), "the first record")
    os.kill(worker_pid(path), signal.SIGTERM)
    run = submit.wait(run_id, 30)
    assert run.status == "interrupted" and "SIGTERM" in run.reason
    assert len(folder.records(path)) == 1


@pytest.mark.parametrize("moment", ["before the work", "after its last word"])
def test_a_worker_told_to_stop_beside_its_work_is_interrupted_or_done(home, monkeypatch, moment):
    """In a process of its own, in which the signal comes at that moment."""
    path = folder.create("steps", {"steps": ["ok"]})
    where = "before" if moment == "before the work" else "after"
    code = (
        "import os, signal, sys\n"
        "from fusescope.jobs import worker\n"
        "work = worker.Worker._finish\n"
        "def finish(self, *words):\n"
        "    said = work(self, *words)\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    return said\n"
        "def output(log):\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        f"worker.Worker._finish, worker._output_to = (finish, worker._output_to) if {where == 'after'} "
        "else (work, output)\n"
        "sys.exit(worker.main(sys.argv[1:]))\n"
    )
    env = os.environ | {"PYTHONPATH": paths.python_path()}
    subprocess.run([sys.executable, "-c", code, str(path)], env=env, timeout=120, capture_output=True)
    run = folder.read(path)
    if where == "after":
        assert run.status == "done" and len(folder.records(path)) == 1
    else:
        assert run.status == "interrupted" and "stopped (SIGTERM)" in run.reason
        submit.resume(path.name)
        assert submit.wait(path.name, 60).status == "done"


def test_a_job_outlives_the_process_that_submitted_it(home):
    code = (
        "import sys, time; from fusescope.jobs import submit\n"
        "print(submit.submit('steps', {'steps': ['ok'] * 10, 'pause_s': 0.1}), flush=True); time.sleep(60)"
    )
    dashboard = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        text=True,
        cwd=paths.ROOT,
        start_new_session=True,
    )
    run_id = dashboard.stdout.readline().strip()
    os.killpg(dashboard.pid, signal.SIGKILL)
    dashboard.wait()
    dashboard.stdout.close()
    assert submit.wait(run_id, 30).status == "done"
    assert len(folder.records(library.find(run_id))) == 10


def test_a_stopped_worker_that_wakes_up_without_its_folder_writes_nothing(home, tmp_path):
    run_id = submit.submit("steps", {"steps": ["ok"] * 40, "pause_s": 0.05})
    path = library.find(run_id)
    until(lambda: folder.records(path), "a record")
    pid = worker_pid(path)
    os.kill(pid, signal.SIGSTOP)
    time.sleep(0.1)
    before = {p.name: p.read_bytes() for p in path.iterdir() if p.is_file()}
    os.rename(path, tmp_path / "moved")
    shutil.copytree(tmp_path / "moved", path)  # somebody restored the folder from a copy
    assert folder.read(path).status == "interrupted"
    marked = (path / "run.json").read_bytes()
    os.kill(pid, signal.SIGCONT)
    until(lambda: ended(pid), "the worker's end")
    assert (path / "run.json").read_bytes() == marked
    for name in ("results.jsonl", "samples.jsonl"):
        assert (path / name).read_bytes() == before[name]
        assert (tmp_path / "moved" / name).read_bytes() == before[name]


def test_a_queued_run_whose_worker_never_came_reads_as_interrupted(home, monkeypatch):
    path = folder.create("steps", {"steps": ["ok"]})
    assert folder.read(path).status == "queued"  # one may be started by hand within a moment
    monkeypatch.setattr(folder, "_START_GRACE_S", 0.0)
    run = folder.read(path)
    assert run.status == "interrupted" and "never started" in run.reason
    submit.resume(run.id)
    assert submit.wait(run.id, 30).status == "done"


@pytest.mark.parametrize("inline", [False, True])
def test_the_worker_can_be_started_by_hand(home, inline):
    path = folder.create("steps", {"steps": ["ok", "ok"], "device": "cpu"})
    command = [sys.executable, "-m", "fusescope.jobs.worker", path.name] + ["--inline"] * inline
    done = subprocess.run(command, cwd=paths.ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert folder.read(path).status == "done" and len(folder.records(path)) == 2


def test_the_worker_says_why_it_cannot_start(home):
    command = [sys.executable, "-m", "fusescope.jobs.worker"]
    no_run = subprocess.run(
        [*command, "20200101-000000-steps-abcdef"], cwd=paths.ROOT, capture_output=True, text=True
    )
    assert no_run.returncode == 2 and "there is no run" in no_run.stderr
    run_id = submit.submit("steps", {"steps": ["hang"]})
    worker_pid(library.find(run_id))
    second = subprocess.run([*command, run_id], cwd=paths.ROOT, capture_output=True, text=True)
    assert second.returncode == 2 and "held by another worker" in second.stderr
    submit.cancel(run_id)
    assert submit.wait(run_id, 30).status == "cancelled"


def test_a_run_begun_elsewhere_is_not_mixed_with_this_machine(home):
    run_id = submit.submit("steps", {"steps": ["ok", "raise"], "device": "cpu"})
    assert submit.wait(run_id, 30).status == "failed"
    path = library.find(run_id)
    text = (path / "run.json").read_text()
    here = folder.read(path).device_name
    (path / "run.json").write_text(text.replace(f'"device_name": "{here}"', '"device_name": "NVIDIA H200"'))
    submit.resume(run_id)
    run = submit.wait(run_id, 30)
    assert run.status == "failed" and "started with device NVIDIA H200, here is" in run.reason
    assert run.device_name == "NVIDIA H200" and len(folder.records(path)) == 1
