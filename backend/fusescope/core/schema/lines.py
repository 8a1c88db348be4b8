"""Records and their samples as the lines that a run's files hold: each is encoded once, by whoever
measured it, and written as it is."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from fusescope.core.records import Record


class Lines(NamedTuple):
    """A record and its samples as lines without their newlines, and what it is booked under."""

    case_key: str
    impl: str
    status: str
    record: str
    samples: Sequence[str] = ()


def encode(value: Any) -> str:
    """JSON values as one line of ASCII."""
    return json.dumps(value, separators=(",", ":"))


def of_record(record: Record) -> str:
    """A line of results.jsonl."""
    return encode(record.to_json())


def of_sample(
    case_key: str,
    impl: str,
    mode: str,
    milliseconds: Sequence[float],
    state: Sequence[Mapping[str, Any]] | None = None,
) -> str:
    """A line of samples.jsonl, from the arguments of ``Reporter.samples``."""
    line = {"case_key": case_key, "impl": impl, "mode": mode, "ms": list(milliseconds), "state": state}
    return encode(line)
