"""The warm parent: on its own, never stale, replaced when it dies, and honest about what it could not
import."""

import json
import os
import shutil
import signal
import socket
import time

import pytest
from jobs_tools import KINDS, until, worker_pid

from fusescope.jobs import submit
from fusescope.jobs.process import warm_parent
from fusescope.store import folder, library

pytestmark = pytest.mark.slow


def parent(runtime):
    """What the warm parent of a runtime folder says of itself, once it is ready."""

    def ready():
        for file in runtime.glob("user-*/warm-*.json"):
            said = json.loads(file.read_text())
            if said["state"] == "ready":
                return said
        return None

    return until(ready, "a warm parent")


def finish(*steps, **spec):
    run = submit.wait(submit.submit("steps", {"steps": list(steps), **spec}), 60)
    return run, (library.find(run.id) / "log.txt").read_text()


def test_it_is_nobodys_child_and_serves_many_jobs(light):
    finish("ok")
    pid = parent(light)["pid"]
    assert os.getsid(pid) != os.getsid(0)
    assert int(open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[1]) != os.getpid()
    run, log = finish("ok")
    assert run.status == "done" and "cold" not in log
    assert parent(light)["pid"] == pid


def test_an_edited_module_is_read_afresh(light, tmp_path, monkeypatch):
    kinds = tmp_path / "kinds"
    shutil.copytree(KINDS, kinds)
    monkeypatch.setenv("FUSESCOPE_KINDS", str(kinds))
    finish("ok")
    text = (kinds / "steps.py").read_text()
    (kinds / "steps.py").write_text(text.replace('"all steps"', '"all steps, edited"'))
    run, _ = finish("ok")
    assert run.progress.message == "all steps, edited"


def test_a_killed_parent_is_replaced_and_its_jobs_live_on(light):
    long = submit.submit("steps", {"steps": ["ok"] * 10, "pause_s": 0.1})
    worker_pid(library.find(long))
    pid = parent(light)["pid"]
    os.kill(pid, signal.SIGKILL)
    run, _ = finish("ok")
    assert run.status == "done"
    assert parent(light)["pid"] != pid
    assert submit.wait(long, 30).status == "done"


def test_a_parent_killed_before_it_forks_loses_no_job(light, tmp_path):
    (tmp_path / "fake/torch.py").write_text("import time; time.sleep(600)")
    asked = [submit.submit("steps", {"steps": ["ok"]}) for _ in range(2)]
    state = until(lambda: next(light.glob("user-*/warm-*.json"), None), "the state file")
    os.kill(json.loads(state.read_text())["pid"], signal.SIGKILL)
    for run_id in asked:
        run = submit.wait(run_id, 60)
        assert run.status == "done" and len(folder.records(library.find(run_id))) == 1, run.reason
        log = (library.find(run_id) / "log.txt").read_text()
        assert "cold interpreter: the warm parent ended while it imported torch" in log
    os.utime(state, (0, 0))  # long ago: another parent is tried
    (tmp_path / "fake/torch.py").write_text("class cuda:\n    is_initialized = staticmethod(bool)\n")
    assert "cold" not in finish("ok")[1]


@pytest.mark.parametrize("worker", ["never forked", "first", "late"])
@pytest.mark.parametrize("parent", ["dies", "hangs"])
def test_a_job_starts_once_whenever_its_parent_dies(worker, parent):
    """The right to start it goes to one process, with the parent's word or without."""
    ours, its = socket.socketpair()
    asked = warm_parent.Request(ours, {"run": "r"}, [])
    text, (right,), *_ = socket.recv_fds(its, 1 << 16, 3)
    assert json.loads(text) == {"run": "r"}
    if worker == "first":
        assert os.read(right, 1)
    if parent == "dies":
        its.close()
    assert asked.taken(0.05) == (worker == "first")
    assert not os.read(right, 1)  # one that comes late does not begin
    os.close(right), its.close()


def test_a_stale_socket_is_no_obstacle(light):
    with warm_parent.Door() as door:
        stale = socket.socket(socket.AF_UNIX)
        with warm_parent._short(door.home) as home:
            stale.bind(f"{home}/{door.socket_name}")
        stale.close()
    assert finish("ok")[0].status == "done"


def test_a_parent_that_does_not_answer_is_replaced(light, monkeypatch):
    finish("ok")
    pid = parent(light)["pid"]
    os.kill(pid, signal.SIGSTOP)
    monkeypatch.setenv("FUSESCOPE_WARM_ACK_S", "0.3")
    run, _ = finish("ok")
    assert run.status == "done" and len(folder.records(library.find(run.id))) == 1
    assert parent(light)["pid"] != pid


def test_what_could_not_be_imported_is_said_in_the_log(light, tmp_path):
    (tmp_path / "fake/torch.py").write_text(
        "raise ImportError('libcudart.so.13: cannot open shared object file')"
    )
    run, log = finish("ok")
    assert run.status == "done"
    assert "torch could not be imported: ImportError: libcudart.so.13" in log


def test_a_torch_that_kills_its_importer_is_left_out(light, tmp_path):
    (tmp_path / "fake/torch.py").write_text("import os; os.kill(os.getpid(), 11)")
    first = submit.submit("steps", {"steps": ["ok"]})
    path = library.find(first)
    until(lambda: not folder.alive(path), "the parent's death")
    run, log = finish("ok")
    assert run.status == "done" and "cold interpreter" in log


@pytest.mark.long
def test_it_ends_when_idle(light, monkeypatch):
    monkeypatch.setenv("FUSESCOPE_WARM_IDLE_S", "0.5")
    submit.warm_up()
    state = until(lambda: next(light.glob("user-*/warm-*.json"), None), "the state file")
    pid = json.loads(state.read_text())["pid"]
    until(lambda: not os.path.exists(f"/proc/{pid}"), "the idle parent's end")
    assert finish("ok")[0].status == "done"  # by a new one


@pytest.mark.long
def test_it_ends_when_torch_was_exchanged(light, tmp_path, monkeypatch):
    monkeypatch.setenv("FUSESCOPE_WARM_CHECK_S", "0.2")
    monkeypatch.setattr(warm_parent, "torch_files", lambda: [str(tmp_path / "fake/torch.py")])
    submit.warm_up()
    pid = parent(light)["pid"]
    time.sleep(0.5)
    assert os.path.exists(f"/proc/{pid}")
    (tmp_path / "fake/torch.py").write_text(
        "class cuda:\n    is_initialized = staticmethod(lambda: False)\n# another\n"
    )
    until(lambda: not os.path.exists(f"/proc/{pid}"), "the outdated parent's end")
    assert finish("ok")[0].status == "done"


def test_warm_up_returns_at_once_and_the_first_job_finds_it(light):
    submit.warm_up()
    pid = parent(light)["pid"]
    begin = time.monotonic()
    assert finish("ok")[0].status == "done"
    assert time.monotonic() - begin < 30
    assert parent(light)["pid"] == pid
