"""What every verb needs of a terminal: JSON or text on standard output, tables, one-sentence errors."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import sys
from collections.abc import Sequence
from shlex import quote
from typing import Any

from fusescope.core.discovery import meant
from fusescope.core.doctor.requirements import requirement
from fusescope.core.foreign.text import printable

_LONGEST = 2000  # characters of an error


class Parser(argparse.ArgumentParser):
    """argparse, but a mistake is one sentence without the usage."""

    def _get_values(self, action, arg_strings):
        if action.option_strings and arg_strings == ["--"]:  # argparse takes --option=-- for no value
            self.error(f"argument {'/'.join(action.option_strings)}: -- is no value")
        return super()._get_values(action, arg_strings)

    def _check_value(self, action, value):
        known = [str(choice) for choice in action.choices or ()]
        if known and value not in action.choices:
            raise argparse.ArgumentError(action, f"invalid choice: {value!r} ({meant(str(value), known)})")

    def error(self, message: str):
        say(f"error: {sentence(message)} ({self.prog} --help shows what it takes)")
        raise SystemExit(2)


class Output:
    """Where a verb's result goes. ``json``: whether JSON was requested."""

    def __init__(self, as_json: bool):
        self.json = as_json

    def answer(self, data: dict[str, Any], text: str) -> None:
        """The one answer of a verb: the data with --json, else the text."""
        if self.json:
            print(json.dumps(_plain(data), indent=1, allow_nan=False), flush=True)
        else:
            print(printable(text), flush=True)


def table(header: Sequence[str], rows: Sequence[Sequence[str]], right: str = "") -> str:
    """Aligned columns, a row one line; ``right`` names by letter (r or l) how each is aligned, left where it
    is too short."""
    cells = [list(header), *[[printable(" ".join(str(cell).split("\n"))) for cell in row] for row in rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    sides = right.ljust(len(header), "l")
    lines = [
        "  ".join(c.rjust(w) if s == "r" else c.ljust(w) for c, w, s in zip(row, widths, sides)).rstrip()
        for row in cells
    ]
    return "\n".join([lines[0], "-" * len(max(lines, key=len)), *lines[1:]])


def say(text: str) -> None:
    """A line for people, on standard error."""
    draw(printable(text) + "\n")


def draw(text: str) -> None:
    """Write to standard error as it is; a closed reader must not end a job."""
    try:
        if sys.stderr:
            print(text, end="", file=sys.stderr, flush=True)
    except (OSError, ValueError):
        _to_nowhere(sys.stderr)


def drain() -> bool:
    """Write out what standard output still holds; False where it cannot be written, which is said."""
    try:
        if sys.stdout:
            sys.stdout.flush()
        return True
    except BrokenPipeError:  # the reader has seen enough
        _to_nowhere(sys.stdout)
    except (OSError, ValueError) as error:
        _to_nowhere(sys.stdout)
        say(f"error: standard output cannot be written: {sentence(str(error))}")
    return False


def _to_nowhere(stream) -> None:
    """Let what a stream holds, and what is still written to it, vanish instead of failing again."""
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


def sentence(text: str) -> str:
    """Text for an error: one line, and not an endless one."""
    shown = printable(" ".join(text.split()))
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST // 2]} … {shown[-_LONGEST // 2 :]}"


def missing_package(what: str, error: ModuleNotFoundError) -> str:
    """The sentence that names the package to install for the request, with the version the project
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
