"""The body of a job: the forked process in which a kind runs, and which a kernel may crash, hang or
poison."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import signal
import socket
import sys
import time
import traceback
from pathlib import Path

from fusescope.core.errors import BuildError, Cancelled, RunError
from fusescope.jobs.process.channel import BodyReporter
from fusescope.jobs.spec.cluster import local_device

_PR_SET_PDEATHSIG = 1


_SAME = {"device_name": "device", "device_uuid": "GPU", "torch": "torch"}


def fork(
    run: Path,
    kind: str,
    spec: dict,
    recorded: dict[tuple[str, str], str],
    first: bool,
    known: dict,
    close: list[int],
) -> tuple[int, socket.socket]:
    """Start a body; gives its process id and the worker's end of the pipe.

    recorded: status of each (case_key, impl) that has a record. first: no other body went before in this
    worker. known: the environment of records that are there already, else empty.
    close: descriptors that stay the worker's alone.
    """
    ours, its = socket.socketpair()
    parent = os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            ours.close()
            for fd in close:
                os.close(fd)
            _bind_to(parent)
            code = _main(its, run, recorded, kind, spec, first, known)
        except BrokenPipeError:
            pass  # the worker was killed: no reader is left
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)  # no exit handlers: a poisoned CUDA context may hang in them
    its.close()
    with contextlib.suppress(OSError):
        os.setpgid(pid, pid)  # in both processes, so that it holds whoever is first
    return pid, ours


def _bind_to(parent: int) -> None:
    """A process group of its own, and death when the worker dies, so that no device stays in use by a job
    nobody books."""
    os.setpgid(0, 0)
    die_with_parent()
    if os.getppid() != parent:
        os._exit(1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    faulthandler.enable()


def die_with_parent() -> None:
    """The system kills this process as soon as the one that started it is gone."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _main(
    sock: socket.socket,
    run: Path,
    recorded: dict[tuple[str, str], str],
    kind: str,
    spec: dict,
    first: bool,
    known: dict,
) -> int:
    reporter = BodyReporter(sock, run, recorded)
    try:
        perform(kind, spec, reporter, first, known)
    except BrokenPipeError:
        raise
    except Cancelled:
        reporter.end(cancelled=True)
    except BaseException as e:
        kept = keep_traceback(reporter)
        if not isinstance(e, ValueError | RunError | BuildError):
            reporter.log(one_sentence(e) + kept)
        reporter.end(error=one_sentence(e), poisoned=is_poisoned(e))
        return 1
    else:
        reporter.end()
    return 0


def perform(kind: str, spec: dict, reporter, first: bool, known: dict) -> None:
    """Validate, describe the machine, wait for the device, run the kind. ``reporter`` has ``ready`` beyond
    the contract.

    ValueError where a run is resumed on something else than it was begun on: one run is measured in one
    place.
    """
    from fusescope.core.machine import environment, stage_times
    from fusescope.jobs import kinds

    begun = time.monotonic()
    module = kinds.load(kind)
    deadline_s = spec.get("deadline_s") or getattr(module, "DEADLINE_S", None)
    spec = module.validate({k: v for k, v in spec.items() if k != "deadline_s"})
    device = local_device(spec, module.device(spec))
    facts = environment.collect(device or "cpu")
    for key, name in () if spec.get("cluster") else _SAME.items():
        if known.get(key) and known[key] != facts.get(key):
            raise ValueError(
                f"this run was started with {name} {known[key]}, here is {facts.get(key)}; submit a new run"
            )
    if first:
        reporter.environment(**facts)
    lock = device if device in (None, "cpu") else facts["device_uuid"]
    asked = time.monotonic()
    reporter.ready(lock, device, deadline_s)
    stage_times.starts(begun + time.monotonic() - asked)
    if first and device and device != "cpu":
        _say_others(reporter, facts.get("device_uuid"))
    if spec.get("cluster"):
        from fusescope.jobs.cluster import job

        return job.run(kind, spec, reporter.artifact("x").parents[1].name, reporter)
    module.run(spec, reporter)


def _say_others(reporter, uuid: str | None) -> None:
    """Mark the run where another process is on the GPU: its times may be disturbed."""
    from fusescope.core.machine import environment

    gpu = next((g for g in environment.gpus() if g.get("uuid") == uuid), None)
    others = [p for p in (gpu or {}).get("processes") or [] if p.get("pid") != os.getpid()]
    reporter.environment(others_on_gpu=others)
    if others:
        names = ", ".join(f"{p.get('name') or 'a process'} (process {p.get('pid')})" for p in others)
        text = f"{gpu.get('name') or 'the GPU'} is also used by {names}: times may be disturbed"
        reporter.log(text)
        reporter.progress(0, 0, text)


def keep_traceback(reporter) -> str:
    """Put the traceback of the exception in hand among the artifacts; gives the end of a sentence that says
    where, nothing where the disk is full."""
    try:
        file = reporter.artifact("traceback.txt")
        file.write_text(traceback.format_exc(), errors="replace")
    except OSError:
        return ""
    return " (traceback: artifacts/traceback.txt)"


def one_sentence(e: BaseException) -> str:
    """An exception as a run's reason: its text, with the type where the text alone does not speak for
    itself."""
    text = " ".join(str(e).split())
    name = type(e).__name__
    if not text:
        return name
    return text if isinstance(e, ValueError) or name in ("BuildError", "RunError") else f"{name}: {text}"


def is_poisoned(e: BaseException) -> bool:
    """Whether the exception says that this process's CUDA context can do no more (an illegal address, a
    launch failure)."""
    return type(e).__name__ == "AcceleratorError" or (isinstance(e, RuntimeError) and "CUDA error" in str(e))
