"""What every verb needs of a terminal: JSON or text on standard output, tables, one-sentence errors."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from shlex import quote
from typing import Any

from fusescope.core.doctor.requirements import requirement


class Parser(argparse.ArgumentParser):
    """argparse, but a mistake is one sentence without the usage."""

    def error(self, message: str):
        print(f"error: {message} ({self.prog} --help shows what it takes)", file=sys.stderr)
        raise SystemExit(2)


class Output:
    """Where a verb's answer goes. ``json``: whether it was asked for."""

    def __init__(self, as_json: bool):
        self.json = as_json

    def answer(self, data: dict[str, Any], text: str) -> None:
        """The one answer of a verb: the data with --json, else the text."""
        print(json.dumps(_plain(data), indent=1, allow_nan=False) if self.json else text, flush=True)


def table(header: Sequence[str], rows: Sequence[Sequence[str]], right: str = "") -> str:
    """Aligned columns; ``right`` names by letter (r or l) how each is aligned, left where it is too short."""
    cells = [list(header), *[list(map(str, row)) for row in rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    sides = right.ljust(len(header), "l")
    lines = [
        "  ".join(c.rjust(w) if s == "r" else c.ljust(w) for c, w, s in zip(row, widths, sides)).rstrip()
        for row in cells
    ]
    return "\n".join([lines[0], "-" * len(max(lines, key=len)), *lines[1:]])


def say(text: str) -> None:
    """A line for people, on standard error."""
    print(text, file=sys.stderr, flush=True)


def plural(count: int, noun: str) -> str:
    """ "1 case", "12 cases"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def missing_package(what: str, error: ModuleNotFoundError) -> str:
    """The sentence that names the package to install for what was asked, with the version the project
    uses."""
    name = (error.name or "").partition(".")[0]
    if name in ("", "fusescope"):
        return str(error)
    line = f"python -m pip install {quote(requirement(name))}"
    return f"{what} needs {name}, which is not installed here: {line}"


def _plain(value: Any) -> Any:
    """JSON values only: NumPy's numbers as Python's; NaN and infinity, which JSON does not have, as null."""
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
