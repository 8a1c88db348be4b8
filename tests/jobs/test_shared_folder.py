"""The folder that users of one machine share: whatever one of them has put there, no file of another is
changed or deleted, and the other's jobs run. With real users; nothing relies on links that the kernel
protects."""

import json
import os
import signal
import stat
import tempfile
from pathlib import Path

import pytest
from jobs_tools import until
from other_user import ALICE, BOB, MALLORY, needs_root, run_as, start_as

from fusescope.core.machine import runtime
from fusescope.jobs import submit
from fusescope.jobs.process import gpu_lock, warm_parent
from fusescope.store import library


@pytest.fixture
def place(monkeypatch):
    """A folder like /run/lock, a shared folder that does not exist yet in it, and a home for Alice."""
    with tempfile.TemporaryDirectory(prefix="fusescope-users-") as name:  # pytest's own are root's alone
        base = Path(name)
        _furnish(base, monkeypatch)
        yield base


def _furnish(base, monkeypatch):
    base.chmod(0o1777)
    home = base / "alice"
    home.mkdir()
    for name in ("precious", ".bashrc", f"{1:020d}-1-run.waits"):
        (home / name).write_text("hers")
        os.utime(home / name, (1, 1))
        os.chown(home / name, ALICE, ALICE)
    os.chown(home, ALICE, ALICE)
    monkeypatch.setenv("FUSESCOPE_RUNTIME", str(base / "fusescope"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)


HOSTILE = {
    "the folder is a link": "os.symlink('alice', 'fusescope')",
    "the folder is a file": "open('fusescope', 'w').close()",
    "the folder is his alone": "os.mkdir('fusescope', 0o700)",
    "the folder is open without the sticky bit": "os.mkdir('fusescope'); os.chmod('fusescope', 0o777)",
    "the lock is a link": "common(); os.symlink(f'{here}/alice/precious', 'fusescope/GPU-0.lock')",
    "the lock is a dangling link": "common(); os.symlink(f'{here}/alice/new', 'fusescope/GPU-0.lock')",
    "the lock is a pipe": "common(); os.mkfifo('fusescope/GPU-0.lock')",
    "the lock is a folder": "common(); os.mkdir('fusescope/GPU-0.lock')",
    "the lock is unreadable": "common(); os.close(os.open('fusescope/GPU-0.lock', os.O_CREAT, 0))",
    "the queue is a link": "common(); os.symlink(f'{here}/alice', 'fusescope/GPU-0.queue')",
    "the queue is his alone": "common(); os.mkdir('fusescope/GPU-0.queue', 0o755)",
    "the queue lets him exchange tickets": (
        "common(); os.mkdir('fusescope/GPU-0.queue'); os.chmod('fusescope/GPU-0.queue', 0o777)"
    ),
    "tickets are links and pipes": (
        "common(); os.mkdir('fusescope/GPU-0.queue'); os.chmod('fusescope/GPU-0.queue', 0o1777)\n"
        "os.symlink(f'{here}/alice/precious', 'fusescope/GPU-0.queue/00000000000000000001-1-a.waits')\n"
        "os.mkfifo('fusescope/GPU-0.queue/00000000000000000002-1-a.has')\n"
        "os.mkdir('fusescope/GPU-0.queue/00000000000000000003-1-a.has')"
    ),
    "the user's own folder is a link": f"common(); os.symlink(f'{{here}}/alice', 'fusescope/user-{ALICE}')",
    "the user's own folder is his": (
        f"common(); os.mkdir('fusescope/user-{ALICE}'); os.chmod('fusescope/user-{ALICE}', 0o777)"
    ),
}

AS_ALICE = """
    ticket = gpu_lock.Ticket("GPU-0", "hers")
    place, who = ticket.advance(), gpu_lock.holder("GPU-0")
    private = runtime.private()
    facts = os.lstat(private)
    ticket.close()
    print(json.dumps([place, who["run"], ticket.warning, facts.st_uid, facts.st_mode & 0o7777]))
"""


@pytest.mark.sample(4)
@pytest.mark.slow
@needs_root
@pytest.mark.parametrize("layout", HOSTILE)
def test_what_another_user_prepared_harms_nobody(place, layout):
    common = "def common(): os.mkdir('fusescope'); os.chmod('fusescope', 0o1777)\n"
    made = run_as(MALLORY, f"os.chdir({str(place)!r}); here = os.getcwd()\n{common}{HOSTILE[layout]}")
    assert made.returncode == 0, made.stderr
    hers = run_as(ALICE, AS_ALICE)
    assert hers.returncode == 0, hers.stderr
    got, run, warning, owner, mode = json.loads(hers.stdout)
    assert (got, run, owner, mode) == (0, "hers", ALICE, 0o700)
    harmless = layout.startswith(("tickets", "the user's own"))
    assert (warning is None) == harmless
    assert harmless or "other users are not waited for" in warning
    home = place / "alice"
    for name in ("precious", ".bashrc", f"{1:020d}-1-run.waits"):
        assert (home / name).read_text() == "hers"
    assert not (home / "new").exists()


@needs_root
def test_a_lock_that_is_a_second_name_of_a_file_is_not_taken(place):
    """Made by root: the kernel may keep others from naming files that they may not write."""
    shared = place / "fusescope"
    shared.mkdir()
    shared.chmod(0o1777)
    os.link(place / "alice/precious", shared / "GPU-0.lock")
    hers = run_as(ALICE, AS_ALICE)
    assert hers.returncode == 0, hers.stderr
    assert "not a regular file with one name" in hers.stdout
    assert (place / "alice/precious").read_text() == "hers"


@needs_root
def test_users_who_trust_each_other_wait_for_each_other(place):
    held = start_as(
        BOB,
        "t = gpu_lock.Ticket('GPU-0', 'his'); print(t.advance(), t.warning, flush=True); sys.stdin.read()",
    )
    assert held.stdout.readline().split() == ["0", "None"]
    code = """
        t = gpu_lock.Ticket('GPU-0', 'hers')
        print(json.dumps([t.advance(), gpu_lock.holder('GPU-0'), t.warning]), flush=True)
        sys.stdin.readline()
        print(t.advance(), flush=True)
    """
    waits = start_as(ALICE, code)
    line = waits.stdout.readline()
    assert line, waits.stderr.read()
    ahead, who, warning = json.loads(line)
    assert (ahead, who["run"], who["user"], who["pid"], warning) == (1, "his", str(BOB), held.pid, None)
    held.send_signal(signal.SIGKILL)
    held.communicate()
    out, err = waits.communicate("\n", timeout=30)
    assert out.split() == ["0"], err


@needs_root
def test_only_ones_own_dead_tickets_are_removed(place):
    dead = "t = gpu_lock.Ticket('GPU-0', 'dead'); os._exit(0)"
    assert run_as(BOB, dead).returncode == 0 and run_as(ALICE, dead).returncode == 0
    queue = place / "fusescope/GPU-0.queue"
    strange = {".hidden": "", "notes.txt": "", f"{2:020d}-1-run.waits": "not empty", "1-1-x.waits": ""}
    for name, text in strange.items():
        (queue / name).write_text(text)
        os.chown(queue / name, ALICE, ALICE)
    for file in queue.iterdir():
        os.utime(file, (1, 1))
    assert run_as(ALICE, AS_ALICE).returncode == 0
    left = {f.name: f.stat().st_uid for f in queue.iterdir()}
    assert [uid for name, uid in left.items() if "dead" in name] == [BOB]
    assert strange.keys() <= left.keys()


@needs_root
def test_a_folder_that_its_owner_exchanges_meanwhile_costs_no_lock(place):
    code = """
        t, u = gpu_lock.Ticket('GPU-0', 'a'), gpu_lock.Ticket('GPU-0', 'b')
        print(t.advance(), u.advance(), flush=True)
        sys.stdin.readline()
        print(u.advance(), u.warning is not None, flush=True)
        t.close()
        print(u.advance(), flush=True)
    """
    (place / "fusescope").mkdir()
    (place / "fusescope").chmod(0o1777)
    os.chown(place / "fusescope", MALLORY, MALLORY)
    hers = start_as(ALICE, code)
    assert hers.stdout.readline().split() == ["0", "1"]
    exchange = f"os.chdir({str(place)!r}); os.rename('fusescope', 'away'); os.symlink('alice', 'fusescope')"
    assert run_as(MALLORY, exchange).returncode == 0
    out, err = hers.communicate("\n", timeout=30)
    assert err == "" and out.split()[-1] == "0"
    assert (place / "alice/precious").read_text() == "hers"


@pytest.mark.slow
@needs_root
def test_the_warm_parent_answers_its_own_user_only(place):
    with warm_parent.Door() as door:
        sock, _ = door.connect()
        sock.close()
        path = door.home / door.socket_name
    try:
        door.home.chmod(0o777)  # even if the folder let others in
        path.chmod(0o777)
        code = f"""
            s = socket.socket(socket.AF_UNIX); s.connect({str(path)!r})
            request = dict(root="/", run="/", cwd="/", env={{}}, arguments=[])
            r, w = os.pipe()
            socket.send_fds(s, [json.dumps(request).encode() + b"\\n"], [r])
            s.settimeout(60)
            try:
                print(len(s.recv(100)))
            except ConnectionResetError:
                print(0)
        """
        his = run_as(MALLORY, code)
        assert his.stdout == "0\n", his
        until(lambda: "another user was refused" in door.log.read_text(), "the refusal in the log")
    finally:
        door.destroy()


@needs_root
def test_a_socket_of_another_user_gets_no_job(place):
    with warm_parent.Door() as door:
        path = door.home / door.socket_name
        door.home.chmod(0o777)
        code = f"""
            s = socket.socket(socket.AF_UNIX); s.bind({str(path)!r}); s.listen()
            os.chmod({str(path)!r}, 0o777)
            print("up", flush=True)
            print(len(s.accept()[0].recv(100)), flush=True)
        """
        his = start_as(MALLORY, code)
        assert his.stdout.readline() == "up\n"
        with pytest.raises(warm_parent.NoParent, match="belongs to another user"):
            door.connect()
        assert his.communicate(timeout=30)[0] == "0\n"  # not a byte of the environment


def test_a_group_that_shares_files_gets_the_sticky_bit(own_runtime):
    own_runtime.mkdir()
    own_runtime.chmod(0o775)
    ticket = gpu_lock.Ticket("GPU-0", "mine")
    ticket.close()
    assert ticket.warning is None and stat.S_IMODE(own_runtime.stat().st_mode) == 0o1775
    assert runtime.private() == own_runtime / f"user-{os.getuid()}"


def test_a_folder_that_cannot_be_had_at_all_is_said(own_runtime, tmp_path, monkeypatch):
    blocked = tmp_path / "blocked"
    blocked.write_text("a file")
    monkeypatch.setenv("FUSESCOPE_RUNTIME", str(blocked))
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    with pytest.raises(PermissionError, match="set FUSESCOPE_RUNTIME to a folder of your own"):
        runtime.private()
    with pytest.raises(OSError, match="no folder for the queue of GPU-0"):
        gpu_lock.Ticket("GPU-0", "mine")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert runtime.private() == tmp_path / "fusescope"


@pytest.mark.slow
def test_a_warning_is_in_the_log_of_the_job(own_runtime, tmp_path, monkeypatch):
    own_runtime.symlink_to(tmp_path / "nowhere")
    if os.getuid() == 0:
        os.chown(own_runtime, MALLORY, MALLORY, follow_symlinks=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", "")
    run = submit.wait(submit.submit("steps", {"steps": ["ok"], "device": "cpu"}), 60)
    log = (library.find(run.id) / "log.txt").read_text()
    assert run.status == "done" and "jobs of other users are not waited for" in log, log
    assert not (tmp_path / "nowhere").exists()
    with warm_parent.Door() as door:
        door._retire(door._said())


@pytest.mark.long
def test_a_connection_that_says_nothing_holds_nobody_up_for_long(own_runtime):
    with warm_parent.Door() as door:
        silent, _ = door.connect()
        until(lambda: door._said().get("state") == "ready", "the warm parent")
    with silent:
        assert submit.wait(submit.submit("steps", {"steps": ["ok"]}), 60).status == "done"
