"""The files that a run's specification names: code that would run, data that would be read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fusescope.core import paths
from fusescope.core.records import Run


class Untrusted(ValueError):
    """An imported run would run code or read files that it names; ``files`` are those."""

    def __init__(self, run_id: str, files: list[str]):
        self.files = files
        super().__init__(
            f"{run_id} was imported and names files of this machine, chosen by its creator: "
            f"{', '.join(files)}; look at them, then give --trust"
        )


def named(spec: Mapping[str, Any]) -> list[str]:
    """Every path in a specification, file.py:function among them, in the order met."""
    found, waiting = {}, [spec]
    while waiting:
        value = waiting.pop(0)
        if isinstance(value, Mapping):
            waiting += value.values()
        elif isinstance(value, list | tuple):
            waiting += value
        elif isinstance(value, str) and _is_path(value):
            found[value] = None
    return list(found)


def check(run: Run, spec: Mapping[str, Any] | None = None, trust: bool = False) -> None:
    """Before a run, or a ``spec`` made of it, is executed again: Untrusted where it was imported and names
    files, unless they are trusted; ValueError in any case where they came with an imported run."""
    files = named(run.spec if spec is None else spec) if run.imported else []
    if inside := [name for name in files if _is_in_a_run(name)]:
        raise ValueError(f"{run.id} names files in run folders, which bring no code: {', '.join(inside)}")
    if files and not trust:
        raise Untrusted(run.id, files)


def _is_path(text: str) -> bool:
    return ".py:" in text or "file:" in text or "/" in text or "\\" in text or text.startswith("~")


def _is_in_a_run(name: str) -> bool:
    path = name.rpartition(":")[0] if ".py:" in name else name.removeprefix("file:")
    try:
        real = os.path.realpath(Path(path).expanduser())
        home = os.path.realpath(paths.profiles())
        return os.path.commonpath([real, home]) == home
    except (OSError, ValueError, RuntimeError):
        return False
