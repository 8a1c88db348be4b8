"""What a class of faults is, and what its cases may find.

A file of ``classes/`` has

    TITLE          what is done to the project, in a few words
    LEAST          how many cases the whole command shall get through; a busy machine may not, and the
                   table says so
    SHARE          its share of the command's time, relative to the others'
    PARTS          how many processes try it at a time, with seeds of their own (optional)
    FIRST          True where one case follows the other for long: it begins with the command (optional)
    NEEDS_GPU      True where its cases need one (optional)
    missing()      why it cannot be tried on this machine, or None (optional)
    prepared(at)   a context manager, all of whose files are under the folder ``at``; gives try_one(seed),
                   which returns how many cases it tried

``try_one`` is determined by its seed, raises Fault for what must not be, and anything else it raises counts
as a raw exception. Seeds are consecutive numbers: a class that goes through a list takes ``seed % len``.
"""

from __future__ import annotations

import contextlib
import os
import re
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType

import fusescope
from fusescope.core.errors import RunError

TryOne = Callable[[int], int]

BARS = {
    "lost": "finished records lost",
    "state": "wrong states",
    "code": "code run that nobody asked for",
    "outside": "reads or writes outside a run's folder",
    "raw": "raw exceptions",
    "words": "refusals that are not one sentence",
    "level": "resources that grow",
    "in": "requests wrongly let in or refused",
}
"""What must be zero."""

_RAW = re.compile(
    r"Traceback|invalid literal|object has no attribute|not subscriptable|NoneType|codec can't|"
    r"(Binder|Conversion|Invalid Input|IO|Catalog|Parser) Error|Arrow|list index|unhashable|0x[0-9a-f]{6,}"
)
_PACKAGE = os.path.dirname(fusescope.__file__)


class Fault(AssertionError):
    """Something of BARS happened."""

    def __init__(self, bar: str, text: str):
        super().__init__(text)
        self.bar, self.text = bar, text


def hold(condition: object, bar: str, text: object) -> None:
    """Raise a Fault where the condition is not met."""
    if not condition:
        raise Fault(bar, str(text))


def one_sentence(text: str) -> None:
    """A refusal as users shall read it: one line, no exception of a library or of Python in it."""
    good = text.strip() and "\n" not in text.strip() and len(text) < 2000 and not _RAW.search(text)
    hold(good, "words", f"no plain sentence: {text[:600]!r}")


@contextlib.contextmanager
def refused_or_read() -> Iterator[None]:
    """A body that may be refused in one sentence, by us and on purpose; else it goes through."""
    try:
        yield
    except (ValueError, RunError) as error:
        if type(error) is not ValueError and not type(error).__module__.startswith("fusescope"):
            raise
        hold(_raised_by(error.__traceback__).startswith(_PACKAGE), "raw", "".join(_last(error)))
        one_sentence(str(error))


def _raised_by(trace: TracebackType | None) -> str:
    return traceback.extract_tb(trace)[-1].filename


def _last(error: BaseException) -> list[str]:
    return traceback.format_exception(error)[-6:]


@contextlib.contextmanager
def variables(**given: str | None) -> Iterator[None]:
    """Environment variables for a while; None takes one away."""
    before = {name: os.environ.get(name) for name in given}
    _set(given)
    try:
        yield
    finally:
        _set(before)


def _set(values: dict[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@contextlib.contextmanager
def folders(at: Path, **further: str | None) -> Iterator[Path]:
    """Profiles, runtime and state below one folder; gives the profiles folder, which is there."""
    home = at / "profiles"
    home.mkdir(parents=True, exist_ok=True)
    (at / "state").mkdir(exist_ok=True)
    own = {f"FUSESCOPE_{name.upper()}": str(at / name) for name in ("profiles", "runtime", "state")}
    with variables(**own | further):
        yield home
