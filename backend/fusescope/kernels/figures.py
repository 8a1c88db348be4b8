"""What the compiler said about an object: registers, shared memory, spills, warnings, and its first error."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
from dataclasses import dataclass
from pathlib import Path

from fusescope.core import whole_files
from fusescope.core.machine.symbols import demangle
from fusescope.kernels.plan import Object


@dataclass(frozen=True)
class KernelResources:
    """What ptxas says about one __global__ function: registers per thread, static shared memory per block
    (bytes; dynamic shared memory is known to the launcher only), spill stores + loads and stack (bytes per
    thread), barriers."""

    name: str
    registers: int
    shared: int
    spills: int
    stack: int
    barriers: int


def write(folder: Path, items: list[Object], seconds: dict[str, float]) -> None:
    """Store what the compiler said about new objects next to them, demangled once. ``seconds`` by file
    name."""
    for item in items:
        _write(folder, item, seconds.get(item.file))


def _write(folder: Path, item: Object, seconds: float | None) -> dict:
    text = text_of((folder / item.file).with_suffix(".log"))
    found = parse_ptxas(text)
    names = demangle([r.name for r in found]) if found else []
    data = {
        "seconds": seconds,
        "resources": [dataclasses.asdict(r) | {"name": name} for r, name in zip(found, names)],
        "warnings": [
            line.strip()
            for line in text.splitlines()
            if re.search(r"warning|Performance Loss", line, re.IGNORECASE)
        ][:20],
    }
    with contextlib.suppress(OSError):  # a full disk costs the next reader time, nothing else
        whole_files.replace((folder / item.file).with_suffix(".json"), json.dumps(data))
    return data


def read(folder: Path, item: Object) -> dict:
    """What ``write`` kept; made again where the builder was stopped between compiling and writing
    it."""
    try:
        return json.loads((folder / item.file).with_suffix(".json").read_text())
    except (OSError, ValueError):
        return _write(folder, item, None)


_ENTRY = re.compile(r"Compiling entry function '([^']+)' for '(\w+)'")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers(?:, used (\d+) barriers)?")
_SHARED = re.compile(r"(\d+) bytes smem")


def parse_ptxas(text: str) -> list[KernelResources]:
    """Figures of every entry function in the output of ptxas -v (names as in the output, mangled)."""
    found, name, stack = [], None, (0, 0, 0)
    for line in text.splitlines():
        if match := _ENTRY.search(line):
            name, stack = match[1], (0, 0, 0)
        elif name and (match := _STACK.search(line)):
            stack = tuple(int(g) for g in match.groups())
        elif name and (match := _USED.search(line)):
            shared = _SHARED.search(line)
            found.append(
                KernelResources(
                    name,
                    int(match[1]),
                    int(shared[1]) if shared else 0,
                    stack[1] + stack[2],
                    stack[0],
                    int(match[2] or 0),
                )
            )
            name = None
    return found


def first_error(output: str) -> str:
    """The line of a compiler's output that says what is wrong."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    wanted = (
        r"\bfatal error\b|\bfatal\s*:|\berror\b\s*[:#]|error:",
        r"\berror\b|No space left|not found|Killed",
    )
    for pattern in wanted:
        for line in lines:
            if re.search(pattern, line):
                return line
    return lines[-1] if lines else "the compiler said nothing"


def text_of(file: Path) -> str:
    return file.read_text(errors="replace") if file.is_file() else ""
