"""Records what a process tells a file system, and makes the states in which a power cut may leave the disk.

What a cut leaves is that of a journalling file system (ext4, XFS): names change in the order in which they
were changed, and an fsync of any file writes down all names before it; the bytes of a file are certain up to
its last fsync, and of what was written later there is any beginning, or zeros where the length was noted
before the bytes.
"""

from __future__ import annotations

import builtins
import contextlib
import io
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Step:
    """One thing that was told: make, folder, write, cut, sync, rename or remove."""

    kind: str
    path: str = ""
    target: str = ""
    file: int = -1
    at: int = 0
    data: bytes = b""


@dataclass
class Recording:
    """The steps, and (number of steps so far, what the program knew then) marks."""

    root: Path
    steps: list[Step] = field(default_factory=list)
    marks: list[tuple[int, object]] = field(default_factory=list)

    def mark(self, known: object) -> None:
        self.marks.append((len(self.steps), known))

    def points(self) -> list[tuple[int, int]]:
        """Every moment of a cut: (whole steps, bytes of the next one)."""
        found = []
        for n, step in enumerate(self.steps):
            apart = max(1, len(step.data) // 1000)  # every byte of all but very long ones
            sizes = range(0, len(step.data), apart) if step.kind == "write" else (0,)
            found += [(n, size) for size in sizes]
        return [*found, (len(self.steps), 0)]

    def left(self, point: tuple[int, int], rng: random.Random, where: Path) -> None:
        """Write what a cut at this point may leave to a folder that does not exist."""
        whole, part = point
        steps = self.steps[:whole]
        if part:
            last = self.steps[whole]
            steps = [*steps, Step("write", file=last.file, at=last.at, data=last.data[:part])]
        synced = max((n for n, s in enumerate(steps) if s.kind == "sync"), default=-1)
        names = [s for s in steps if s.kind in ("make", "folder", "rename", "remove")]
        certain = sum(s.kind in ("make", "folder", "rename", "remove") for s in steps[: synced + 1])
        names = names[: rng.randint(certain, len(names))]
        where.mkdir()
        there: dict[str, int | None] = {}
        for step in names:
            if step.kind == "make":
                there[step.path] = step.file
            elif step.kind == "folder":
                there[step.path] = None
            elif step.kind == "remove":
                there.pop(step.path, None)
            else:
                moved = {p: f for p, f in there.items() if p == step.path or p.startswith(step.path + "/")}
                for path in moved:
                    del there[path]
                there |= {step.target + p[len(step.path) :]: f for p, f in moved.items()}
        for path, file in sorted(there.items()):
            target = where / path
            if file is None:
                target.mkdir(parents=True, exist_ok=True)
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(_bytes_of(steps, file, rng))


def _bytes_of(steps: list[Step], file: int, rng: random.Random) -> bytes:
    mine = [s for s in steps if s.file == file and s.kind in ("write", "cut", "sync")]
    synced = max((n for n, s in enumerate(mine) if s.kind == "sync"), default=-1)
    later = mine[synced + 1 :]
    data = bytearray()
    for step in mine[: synced + 1]:
        _apply(data, step)
    kept = rng.randint(0, len(later))
    for step in later[:kept]:
        _apply(data, step)
    if kept < len(later) and later[kept].kind == "write":
        torn = later[kept]
        part = rng.randint(0, len(torn.data))
        some = torn.data[:part] + bytes(len(torn.data) - part if rng.random() < 0.3 else 0)
        _apply(data, Step("write", at=torn.at, data=some))
    return bytes(data)


def _apply(data: bytearray, step: Step) -> None:
    if step.kind == "write":
        data.extend(bytes(max(0, step.at - len(data))))
        data[step.at : step.at + len(step.data)] = step.data
    elif step.kind == "cut":
        del data[step.at :]
        data.extend(bytes(step.at - len(data)))


@contextlib.contextmanager
def recording(root: Path) -> Iterator[Recording]:
    """Everything that this process does below ``root`` meanwhile, which is done as well."""
    made = Recording(root)
    with contextlib.ExitStack() as stack:
        for name, new in _Recorder(made).calls().items():
            module, _, attribute = name.partition(".")
            module = {"os": os, "builtins": builtins, "io": io}[module]
            stack.callback(setattr, module, attribute, getattr(module, attribute))
            setattr(module, attribute, new)
        yield made


class _Recorder:
    def __init__(self, made: Recording):
        self.made, self.files = made, {}  # descriptor → [number, position or None where it appends]
        self.numbers: dict[int, int] = {}  # inode → number
        self.real = {n: getattr(os, n) for n in ("open", "write", "fsync", "fdatasync", "ftruncate", "close")}
        self.real |= {n: getattr(os, n) for n in ("replace", "rename", "unlink", "mkdir", "dup")}
        self.opened = builtins.open

    def calls(self) -> dict:
        own = {f"os.{name}": getattr(self, name) for name in self.real}
        return own | {"os.remove": self.unlink, "builtins.open": self.file, "io.open": self.file}

    def _name(self, path) -> str | None:
        if isinstance(path, int):
            return None
        full = os.path.abspath(os.fspath(path))
        below = full.startswith(f"{self.made.root}/")
        return full[len(str(self.made.root)) + 1 :] if below else None

    def _note(self, kind: str, **what) -> None:
        self.made.steps.append(Step(kind, **what))

    def open(self, path, flags, mode=0o777, *, dir_fd=None):
        name = self._name(path) if dir_fd is None else None
        writes = flags & (os.O_WRONLY | os.O_RDWR)
        new = name is not None and writes and not os.path.exists(path)
        fd = self.real["open"](path, flags, mode, dir_fd=dir_fd)
        if name is None or not writes:
            return fd
        inode = os.fstat(fd).st_ino
        if new:
            self.numbers[inode] = len(self.made.steps)
            self._note("make", path=name, file=self.numbers[inode])
        number = self.numbers[inode]
        if flags & os.O_TRUNC and not new:
            self._note("cut", file=number, at=0)
        self.files[fd] = [number, None if flags & os.O_APPEND else 0]
        return fd

    def write(self, fd, data):
        held = self.files.get(fd)
        at = 0 if held is None else os.fstat(fd).st_size if held[1] is None else held[1]
        done = self.real["write"](fd, data)
        if held is not None:
            self._note("write", file=held[0], at=at, data=bytes(data[:done]))
            if held[1] is not None:
                held[1] += done
        return done

    def fsync(self, fd):
        self.real["fsync"](fd)
        if fd in self.files:
            self._note("sync", file=self.files[fd][0])

    def fdatasync(self, fd):
        self.fsync(fd)

    def ftruncate(self, fd, size):
        self.real["ftruncate"](fd, size)
        if fd in self.files:
            self._note("cut", file=self.files[fd][0], at=size)

    def close(self, fd):
        self.files.pop(fd, None)
        self.real["close"](fd)

    def dup(self, fd):
        new = self.real["dup"](fd)
        if fd in self.files:
            self.files[new] = self.files[fd]
        return new

    def replace(self, source, target, **dirs):
        self.real["replace"](source, target, **dirs)
        if (old := self._name(source)) and (new := self._name(target)):
            self._note("rename", path=old, target=new)

    rename = replace

    def unlink(self, path, *, dir_fd=None):
        self.real["unlink"](path, dir_fd=dir_fd)
        if dir_fd is None and (name := self._name(path)):
            self._note("remove", path=name)

    def mkdir(self, path, mode=0o777, *, dir_fd=None):
        self.real["mkdir"](path, mode, dir_fd=dir_fd)
        if dir_fd is None and (name := self._name(path)):
            self._note("folder", path=name)

    def file(self, path, mode="r", buffering=-1, encoding=None, errors=None, newline=None, **more):
        if self._name(path) is None or not set(mode) & set("wax"):
            return self.opened(path, mode, buffering, encoding, errors, newline, **more)
        flags = {"w": os.O_CREAT | os.O_TRUNC, "x": os.O_CREAT | os.O_EXCL, "a": os.O_CREAT | os.O_APPEND}
        fd = self.open(path, os.O_WRONLY | flags[next(c for c in mode if c in "wax")], 0o666)
        raw = io.BufferedWriter(_Raw(self, fd))
        return raw if "b" in mode else io.TextIOWrapper(raw, encoding or "utf-8", errors, newline)


class _Raw(io.RawIOBase):
    def __init__(self, recorder: _Recorder, fd: int):
        self.recorder, self.fd = recorder, fd

    def writable(self):
        return True

    def fileno(self):
        return self.fd

    def write(self, data):
        return self.recorder.write(self.fd, bytes(data))

    def close(self):
        if not self.closed:
            super().close()
            self.recorder.close(self.fd)
