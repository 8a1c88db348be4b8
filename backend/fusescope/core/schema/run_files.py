"""What a run's files hold besides records: the common keys of a specification, what people wrote, raw
samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fusescope.core.schema.parameters import Parameter

SPEC = (
    *(Parameter(name, "text", None) for name in ("op", "impl", "baseline", "dtype", "device", "model")),
    *(Parameter(name, "text", None) for name in ("trace", "after")),
    Parameter("impls", "names", None),
    Parameter("cases", "objects", None),
    Parameter("case", "object", None),
)
"""The keys of a specification that mean the same whatever the job kind; its kind knows the others."""

NOTES = (Parameter("title", "text"), Parameter("tags", "names"), Parameter("notes", "text"))
"""notes.json."""


@dataclass(frozen=True)
class Samples:
    """A line of samples.jsonl: the raw samples (ms) of a record in one mode, and the device's state
    meanwhile."""

    case_key: str
    impl: str
    mode: str
    ms: tuple[float, ...]
    state: tuple[Any, ...] | None = None


def check_spec(spec: Mapping[str, Any]) -> None:
    """ValueError where a common key of a specification has a value of another type; null and an empty list
    say nothing."""
    for parameter in SPEC:
        value = spec.get(parameter.name)
        if value is not None and value != []:
            try:
                parameter.check(value)
            except ValueError as error:
                raise ValueError(f"spec.{error}") from None
