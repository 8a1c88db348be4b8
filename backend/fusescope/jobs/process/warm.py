"""The warm parent: a process that has imported torch and forks a worker a job, so that a job begins at once.

Run as a script, never imported: it imports third-party modules only, so the workers it forks always read the
project's own modules afresh, and it runs no torch operation and never asks for CUDA (a process forked after
either may hang). It lives in a session of its own, and ends by itself when it was idle for hours or when its
torch, its interpreter or this file changed.

    python warm.py LISTENING_FD STATE_FILE IDENTITY_FILE…

A request is one line of JSON {"root", "run", "cwd", "env"} with the descriptor that holds the run folder's
lock.
"""

import array
import contextlib
import json
import os
import select
import signal
import socket
import sys
import time
import traceback

IDLE_S = float(os.environ.get("FUSESCOPE_WARM_IDLE_S", 4 * 3600))
CHECK_EVERY_S = min(float(os.environ.get("FUSESCOPE_WARM_CHECK_S", 20)), IDLE_S)
MODULES = ("numpy", "torch")


def main():
    listener = socket.socket(fileno=int(sys.argv[1]))
    state_file, identity = sys.argv[2], sys.argv[3:]
    if os.fork():
        os._exit(0)  # nobody's child, in nobody's session
    os.setsid()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    before = [stamp(f) for f in identity]
    write_state(state_file, "preloading", None)
    error = preload()
    write_state(state_file, "ready", error)
    signal.signal(signal.SIGCHLD, lambda *_: reap())
    used = time.monotonic()
    while True:
        ready, _, _ = select.select([listener], [], [], CHECK_EVERY_S)
        if ready:
            used = time.monotonic()
            answer(listener, error)
        elif not os.path.exists(state_file):
            return
        elif [stamp(f) for f in identity] != before or (
            time.monotonic() - used > IDLE_S and not has_children()
        ):
            os.unlink(state_file)
            return


def preload():
    """Import what jobs need; gives what went wrong, as text, or None. A module that fails here fails again in
    the job."""
    said = []
    for name in MODULES:
        try:
            __import__(name)
        except BaseException as e:
            said.append(f"{name} could not be imported: {type(e).__name__}: {e}")
            traceback.print_exc()
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "cuda") and torch.cuda.is_initialized():
        said.append("torch initialised CUDA on import; jobs cannot be forked from here")
    return "; ".join(said) or None


def answer(listener, error):
    connection, _ = listener.accept()
    with connection:
        connection.settimeout(5.0)
        try:
            request, lock = receive(connection)
        except (OSError, ValueError):
            traceback.print_exc()
            return
        pid = os.fork()
        if pid == 0:
            listener.close()
            become_worker(request, lock, error)
        os.close(lock)
        with contextlib.suppress(OSError):  # the client may be gone; the job is not
            connection.sendall(json.dumps({"pid": pid, "preload_error": error}).encode() + b"\n")


def receive(connection):
    text, fds = b"", array.array("i")
    while not text.endswith(b"\n"):
        part, extra, _, _ = connection.recvmsg(1 << 16, socket.CMSG_SPACE(fds.itemsize))
        for level, kind, data in extra:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds.frombytes(data[: fds.itemsize])
        if not part:
            raise ValueError("a request was cut short")
        text += part
    if not fds:
        raise ValueError("a request came without the run's lock")
    return json.loads(text), fds[0]


def become_worker(request, lock, error):
    code = 1
    try:
        os.setsid()
        for number in (signal.SIGCHLD, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        os.environ.clear()
        os.environ.update(request["env"])
        try:
            os.chdir(request["cwd"])
        except OSError:
            os.chdir(request["root"])  # the folder of whoever submitted is gone
        sys.path.insert(0, request["root"])
        arguments = [request["run"], "--lock-fd", str(lock)] + (
            ["--note", f"warm parent: {error}"] if error else []
        )
        sys.argv = ["worker", *arguments]
        from fusescope.jobs import worker

        code = worker.main(arguments)
    except SystemExit as e:
        code = e.code if isinstance(e.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def reap():
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def has_children():
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def stamp(path):
    try:
        s = os.stat(path)
    except OSError:
        return None
    return s.st_ino, s.st_mtime_ns, s.st_size


def write_state(path, state, error):
    with open(path + ".new", "w") as f:
        json.dump({"pid": os.getpid(), "state": state, "preload_error": error}, f)
    os.replace(path + ".new", path)


if __name__ == "__main__":
    main()
