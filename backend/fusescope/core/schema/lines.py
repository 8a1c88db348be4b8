"""Records and their samples as the lines that a run's files hold: each is encoded once, by whoever
measured it, and written as it is."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from fusescope.core.schema.typed import plain

if TYPE_CHECKING:
    from fusescope.core.records import Record


class Lines(NamedTuple):
    """A record and its samples as lines without their newlines, and what it is booked under."""

    case_key: str
    impl: str
    status: str
    record: str
    samples: Sequence[str] = ()


_ENCODER = json.JSONEncoder(separators=(",", ":"))  # json.dumps makes one a call


def encode(value: Any) -> str:
    """JSON values as one line of ASCII."""
    return _ENCODER.encode(value)


def of_record(record: Record, where: Mapping[str, Any] | None = None) -> str:
    """A line of results.jsonl; ``where``: of its conditions, those that name the device it is from."""
    whole = record.to_json()
    if where is not None:
        whole["conditions"] = (whole.get("conditions") or _nowhere()) | where
    return encode(whole)


@cache
def _nowhere() -> dict[str, Any]:
    """Conditions of which nothing is known."""
    from fusescope.core.machine.conditions import Conditions

    return plain(Conditions())


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
