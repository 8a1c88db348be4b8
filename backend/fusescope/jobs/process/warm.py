"""The warm parent: a process that has imported torch and forks a worker per job, so a job begins at once.

Run as a script, never imported: it imports third-party modules only, so the workers it forks always read the
project's own modules afresh, and it runs no torch operation and never asks for CUDA (a process forked after
either may hang). It lives in a session of its own, and ends by itself when it was idle for IDLE_S, when its
torch, its interpreter or this file changed, or when another parent took its place.

    python warm.py LISTENING_FD STATE_FILE SETTINGS IDLE_S CHECK_EVERY_S IDENTITY_FILE…

A request is one line of JSON {"root", "run", "cwd", "env", "arguments"} from a process of the same user, with
the descriptors of the right to start it (a pipe with one byte, which whoever asked may take back), of the run
folder's lock and, where there is one, of the ticket in the device's queue.
"""

import array
import gc
import json
import os
import select
import signal
import socket
import struct
import sys
import time
import traceback

MODULES = ("numpy", "torch")


def main():
    listener = socket.socket(fileno=int(sys.argv[1]))
    state_file, settings, idle_s, check_s, *identity = sys.argv[2:]
    check_s = min(float(check_s), float(idle_s))
    if os.fork():
        os._exit(0)  # nobody's child, in nobody's session
    os.setsid()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    told, tell = os.pipe()  # a signal alone would not end select's waiting
    signal.signal(signal.SIGTERM, lambda *_: os.write(tell, b"!"))
    before = [stamp(f) for f in identity]
    write_state(state_file, settings, "preloading", None)
    mine = stamp(state_file)
    error = preload()
    if stamp(state_file) == mine:
        write_state(state_file, settings, "ready", error)
        mine = stamp(state_file)
    signal.signal(signal.SIGCHLD, lambda *_: reap())
    used = time.monotonic()
    while True:
        ready, _, _ = select.select([listener, told], [], [], check_s)
        if listener in ready:
            used = time.monotonic()
            answer(listener, error)
        elif ready or stamp(state_file) != mine:
            return
        elif [stamp(f) for f in identity] != before or (
            time.monotonic() - used > float(idle_s) and not has_children()
        ):
            os.unlink(state_file)
            return


def preload():
    """Import what jobs need; gives what went wrong, as text, or None. A module that fails here fails again in
    the job. What is imported stays for good: no collector looks through it, here or in a fork."""
    said = []
    gc.disable()
    for name in MODULES:
        try:
            __import__(name)
        except BaseException as e:
            said.append(f"{name} could not be imported: {type(e).__name__}: {e}")
            traceback.print_exc()
    gc.freeze()
    gc.enable()
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "cuda") and torch.cuda.is_initialized():
        said.append("torch initialised CUDA on import; jobs cannot be forked from here")
    return "; ".join(said) or None


def answer(listener, error):
    connection, _ = listener.accept()
    with connection:
        connection.settimeout(5.0)
        fds = array.array("i")
        try:
            if peer(connection) != os.getuid():
                print("a request of another user was refused", file=sys.stderr, flush=True)
                return
            request = receive(connection, fds)
            pid = os.fork()
            if pid == 0:
                listener.close()
                become_worker(request, fds, error)
            connection.sendall(json.dumps({"pid": pid, "preload_error": error}).encode() + b"\n")
        except (OSError, ValueError):  # the client may be gone; the job, if it was forked, is not
            traceback.print_exc()
        finally:
            for fd in fds:
                os.close(fd)


def peer(connection):
    """The user at the other end."""
    return struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]


def receive(connection, fds):
    """The request; its descriptors are added to fds."""
    text = b""
    while not text.endswith(b"\n"):
        part, extra, _, _ = connection.recvmsg(1 << 16, socket.CMSG_SPACE(3 * fds.itemsize))
        for level, kind, data in extra:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
        if not part:
            raise ValueError("a request was cut short")
        text += part
    if len(fds) < 2:
        raise ValueError("a request came without the right to start it and the run's lock")
    return json.loads(text)


def become_worker(request, fds, error):
    code = 1
    try:
        os.setsid()
        for number in (signal.SIGCHLD, signal.SIGHUP, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        right, *handed = fds
        if not os.read(right, 1):
            os._exit(0)  # the submitter waited too long and started it from a cold interpreter
        os.close(right)
        os.environ.clear()
        os.environ.update(request["env"])
        try:
            os.chdir(request["cwd"])
        except OSError:
            os.chdir(request["root"])  # the submitter's folder is gone
        sys.path.insert(0, request["root"])
        arguments = [request["run"], *request["arguments"]]
        for name, fd in zip(("--lock-fd", "--ticket-fd"), handed):
            arguments += [name, str(fd)]
        if error:
            arguments += ["--note", f"warm parent: {error}"]
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


def write_state(path, settings, state, error):
    with open(f"{path}.{os.getpid()}", "w") as f:
        json.dump({"pid": os.getpid(), "settings": settings, "state": state, "preload_error": error}, f)
    os.replace(f"{path}.{os.getpid()}", path)


if __name__ == "__main__":
    main()
