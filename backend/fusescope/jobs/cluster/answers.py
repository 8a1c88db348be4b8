"""What a worker answers of a unit: records and samples as the lines to write; and what the submitting job
makes sure of before it has them written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from fusescope.core.records import MODES, Record
from fusescope.core.schema import lines
from fusescope.core.schema.lines import Lines
from fusescope.core.schema.run_files import Samples
from fusescope.core.schema.typed import build, decode
from fusescope.store import files

LONGEST = 8 << 20  # characters of a line; readers of a run take twice as many
_SHALLOW = 64  # brackets that no reader of a run finds nested too deep


class Measured(NamedTuple):
    """What a worker measured of a unit. samples: the arguments of ``Reporter.samples``."""

    key: str
    records: Sequence[Record]
    samples: Sequence[Mapping[str, Any]]
    log: Sequence[str]
    environment: Mapping[str, Any]
    seconds: float


def make(order: Mapping[str, Any], measured: Iterable[Measured], error: str | None = None) -> dict[str, Any]:
    """A worker's answer to an order: {"found", "error"}. found, of each unit: {"key", "records", "log",
    "environment", "seconds"}, records being [line, [lines of its samples]] with the device of
    ``order["where"]``.

    Lines are made here, when the order's units have all been measured: one after the other they take half
    the time that each takes between two measurements (25 and 49 us for a small one).
    """
    return {"found": [_found(unit, order["where"]) for unit in measured], "error": error}


def _found(unit: Measured, where: Mapping[str, Any]) -> dict[str, Any]:
    of: dict[tuple[str, str], list[str]] = {}
    for one in unit.samples:
        of.setdefault((one["case_key"], one["impl"]), []).append(lines.of_sample(**one))
    found = [[lines.of_record(r, where), of.get((r.case_key, r.impl), [])] for r in unit.records]
    about = {"log": unit.log, "environment": unit.environment, "seconds": unit.seconds}
    return {"key": unit.key, "records": found} | about


def check(answer: Any, where: Mapping[str, Any]) -> tuple[Record, Lines]:
    """One of an answer's "records", and its lines to write as they are. ValueError for what no reader of a
    run would take, a record of another device, samples of another record."""
    match answer:
        case [record, [*samples]]:
            made = _read(Record, record)
        case _:
            raise ValueError("it is no record with a list of samples")
    for name, value in where.items():
        if getattr(made.conditions, name, None) != value:
            raise ValueError(f"conditions.{name} is not the worker's, {value!r}")
    found = Lines(made.case_key, made.impl, made.status, record, tuple(samples))
    for text in samples:
        sample = _read(Samples, text)
        if (sample.case_key, sample.impl) != found[:2]:
            raise ValueError("samples of another record come with it")
        if sample.mode not in MODES:
            raise ValueError(f"samples are of {', '.join(MODES)}, not {sample.mode!r:.40}")
    return made, found


def _read(cls: type, text: Any) -> Any:
    """The Record or Samples of one line."""
    if not isinstance(text, str) or len(text) > LONGEST:
        raise ValueError(f"it is no text of at most {LONGEST >> 20} Mi characters")
    if not text.isascii() or "\n" in text or "\r" in text:
        raise ValueError("it is not one line of ASCII")
    shallow = text.count("{") + text.count("[") <= _SHALLOW
    made = decode(cls, text) if shallow else None
    if made is None:
        try:
            made = build(cls, files.parse(text.encode()))
        except RecursionError:
            raise ValueError("it is nested too deep") from None
    return made
