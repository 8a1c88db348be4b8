"""Job kinds, one file each, found by name. FUSESCOPE_KINDS names further folders (os.pathsep between them)
with kinds.

A kind defines
    TITLE               for people
    validate(spec)      -> the complete spec as JSON values, torch-free; ValueError: rule, value, what is
                        supported
    name(spec)          -> what the run did in a few words, of any spec of this kind: "trace of add v1"
    device(spec)        -> "cuda:0", "cpu": held alone while the job runs; None: nothing is measured, no
                        device is held
    run(spec, reporter) the work; exceptions become the run's reason, Cancelled is let through
and may define DEADLINE_S, the seconds after which the whole job is stopped (default: no limit but the spec's
deadline_s).
"""

from __future__ import annotations

import os
import sys
from types import ModuleType

from fusescope.core.discovery import load_part, module_names
from fusescope.core.records import Run

PARTS = ("TITLE", "validate", "name", "device", "run")


def names() -> list[str]:
    """The kinds there are."""
    _extend()
    return module_names(sys.modules[__name__])


def load(kind: str) -> ModuleType:
    """The kind's module, checked for completeness; ValueError for an unknown name, TypeError naming missing
    parts."""
    _extend()
    return load_part(sys.modules[__name__], kind, PARTS, "job kind")


def name(run: Run) -> str:
    """The run's title, else what it did, as its kind says: "attention, 5 implementations, seq
    512 to 4,096, float16"; the kind itself where the specification is not one of its own."""
    if run.title or run.kind not in names():
        return run.title or run.kind
    try:
        return load(run.kind).name(run.spec)
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError):
        return run.kind


def _extend() -> None:
    further = [folder for folder in os.environ.get("FUSESCOPE_KINDS", "").split(os.pathsep) if folder]
    __path__[:] = [os.path.dirname(__file__), *further]
