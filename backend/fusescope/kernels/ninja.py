"""Running ninja over the objects that are missing: parallel, its output line by line, one broken source
blocking no other."""

from __future__ import annotations

import contextlib
import os
import queue
import re
import shlex
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

from fusescope.core.doctor.diagnosis import diagnose
from fusescope.core.errors import BuildError, Cancelled
from fusescope.core.machine.toolchain import Toolchain, compilers
from fusescope.kernels import precompiled
from fusescope.kernels.plan import Object

_FULL_BYTES = 1_000_000
_EVERY_S = 1.0  # between two words of progress while nothing ends
_STATUS = re.compile(r"^\[(\d+)/(\d+)\] ")


def compile_missing(
    chain: Toolchain,
    folder: Path,
    missing: list[Object],
    log: Callable[[str], None],
    cancelled: Callable[[], bool],
    progress: Callable[[int, int, str], None],
) -> None:
    """Compile into ``folder``: object and compiler output (.log) of what succeeds, .failed with the output of
    what does not.

    The file given to ninja lists missing objects only and without inputs: names are content hashes, so time
    stamps say nothing.
    """
    if chain.ninja is None:
        raise BuildError("ninja is missing: pip install ninja")
    for item in missing:
        for suffix in (".o", ".log", ".failed"):
            (folder / item.file).with_suffix(suffix).unlink(missing_ok=True)
    lines = ["rule compile", "  command = $run", "  description = $title", "builddir = ninja", ""]
    headers = precompiled.headers(folder, missing)
    for header in sorted(set(headers.values())):
        first = next(i for i in missing if headers.get(i.file) == header)
        lines += _edge(f"{header}.done", precompiled.command(chain, first, header), "headers of torch")
    for item in missing:
        header = headers.get(item.file)
        needs = f" | {header}.done" if header else ""
        lines += _edge(item.file, _command(chain, item, header), item.title, needs)
    (folder / "build.ninja").write_text("\n".join(lines) + "\n")
    (folder / "ninja" / ".ninja_log").unlink(missing_ok=True)
    arguments = [chain.ninja, "-k", "0", *(["-j", str(most)] if (most := compilers()) else [])]
    try:
        output = _run(arguments, folder, missing, log, cancelled, progress)
    finally:
        precompiled.remove(folder)
    for item in missing:
        log_file = (folder / item.file).with_suffix(".log")
        if (folder / item.file).is_file():
            continue
        if not log_file.is_file() or log_file.stat().st_size == 0:
            _raise_unexplained(folder, item, output)
        log_file.rename(log_file.with_suffix(".failed"))


def _raise_unexplained(folder: Path, item: Object, output: str) -> None:
    """For an object that failed with an empty log: ninja or the disk stopped it, not the compiler."""
    if shutil.disk_usage(folder).free < _FULL_BYTES:
        output += "\nNo space left on device"
    causes = tuple(diagnose(output))
    reason = (
        causes[0].says
        if causes
        else next((line for line in reversed(output.splitlines()) if line.strip()), "no output")
    )
    raise BuildError(f"{item.title} could not be compiled: {reason}", causes, output)


def seconds(folder: Path) -> dict[str, float]:
    """How long each object of the last run took, by file name."""
    file = folder / "ninja" / ".ninja_log"
    rows = (
        [line.split("\t") for line in file.read_text().splitlines() if not line.startswith("#")]
        if file.is_file()
        else []
    )
    return {row[3]: (int(row[1]) - int(row[0])) / 1000 for row in rows if len(row) >= 5}


def _edge(target: str, command: str, title: str, needs: str = "") -> list[str]:
    return [f"build {target}: compile{needs}", f"  run = {command.replace('$', '$$')}", f"  title = {title}"]


def _command(chain: Toolchain, item: Object, header: str | None) -> str:
    """Compile, then make every symbol but the entry point local: two kernels, or two bindings, may use the
    same names (templates instantiated for several tile sizes, a header built for several architectures) and
    the linker neither merges nor refuses."""
    out = item.file
    if item.compiler == "nvcc":
        words = [chain.nvcc.path, *(["-ccbin", chain.gxx.path] if chain.gxx else [])]
    else:
        words = [chain.gxx.path]
    begin = ("-include", header) if header else ()
    compile_ = shlex.join([*words, *item.flags, *begin, "-c", str(item.source)]) + f" -o {out}.part"
    compile_ += f" && ld -r --force-group-allocation -o {out}.whole {out}.part"
    compile_ += (
        f" && objcopy --keep-global-symbol={item.keep or 'nothing'} {out}.whole {out}.part && rm {out}.whole"
    )
    log = Path(out).with_suffix(".log")
    failed = f"cat {log}; rm -f {out}.*; exit 1"
    return f"if {{ {compile_}; }} > {log} 2>&1; then mv {out}.part {out}; else {failed}; fi"


def _run(arguments, folder, missing, log, cancelled, progress) -> str:
    environment = os.environ | {"NINJA_STATUS": "[%f/%t] ", "LC_ALL": "C", "TERM": "dumb"}
    process = subprocess.Popen(
        arguments,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    lines: queue.Queue[str | None] = queue.Queue()
    seen: list[str] = []
    ended: set[str] = set()  # titles of what compiled or failed
    said_at = time.monotonic()
    threading.Thread(target=_pump, args=(process.stdout, lines), daemon=True).start()
    try:
        while True:
            if cancelled():
                raise Cancelled("the build was cancelled")
            if time.monotonic() - said_at >= _EVERY_S and (now := _under_way(folder, missing, ended)):
                said_at = time.monotonic()
                progress(len(ended), len(missing), now)
            try:
                line = lines.get(timeout=0.1)
            except queue.Empty:
                continue
            if line is None:
                break
            if match := _STATUS.match(line):
                ended.add(line[match.end() :])
                progress(int(match[1]), int(match[2]), line[match.end() :])
            log(line)
            seen.append(line)
        process.wait()
        return "\n".join(seen)
    finally:
        if process.poll() is None:
            _stop(process)


def _under_way(folder: Path, missing: list[Object], ended: set[str]) -> str:
    """What is being compiled, by the logs that are open: "attention/v3_hopper sm_90a and 1 more"."""
    now = [i for i in missing if i.title not in ended and (folder / i.file).with_suffix(".log").is_file()]
    return now[0].title + (f" and {len(now) - 1} more" if len(now) > 1 else "") if now else ""


def _pump(stream, lines: queue.Queue) -> None:
    for line in stream:
        lines.put(line.rstrip("\n"))
    lines.put(None)


def _stop(process: subprocess.Popen) -> None:
    """Ninja puts each compiler into a process group of its own but all stay in its session: ask ninja, then
    end the session."""
    session = process.pid
    process.send_signal(signal.SIGTERM)  # SIGINT may be ignored by what the compilers inherit
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(3)
    deadline = time.monotonic() + 5
    while (members := _session(session)) and time.monotonic() < deadline:
        for pid in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    process.wait(5)


def _session(session: int) -> list[int]:
    members = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = (
                stat.read_text().rpartition(")")[2].split()
            )  # after the name: state ppid pgrp session ...
            if int(fields[3]) == session and fields[0] != "Z":
                members.append(int(stat.parent.name))
    return members
