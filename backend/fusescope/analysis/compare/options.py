"""What an option of an operator costs: cases of one run that differ in nothing else, with it and without."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fusescope.core.records import HEADLINE, Record
from fusescope.core.schema.cases import ABSENT, whole

_WITHOUT = ("none", "no")


@dataclass(frozen=True)
class Cost:
    """The time of one implementation with an option over its time without: a ratio of medians, without an
    interval, since the two cases were not sampled in turn. case: what both have in common."""

    impl: str
    key: str
    value: Any
    without: Any
    case: tuple[tuple[str, Any], ...]
    with_ms: float
    without_ms: float

    @property
    def ratio(self) -> float:
        """Time with / time without."""
        return self.with_ms / self.without_ms


def costs(records: Iterable[Record]) -> list[Cost]:
    """Every option of which a run has cases with and without it, in the order of the records; times of one
    mode, of one device and dtype."""
    timed = [r for r in records if r.status == "ok"]
    cases = whole(r.case for r in timed)
    found = []
    for key in dict.fromkeys(k for case in cases for k in case):
        plain = {
            _rest(r, case, key): (r, case[key])
            for r, case in zip(timed, cases, strict=True)
            if key in case and _is_without(key, case[key])
        }
        for record, case in zip(timed, cases, strict=True):
            base = plain.get(_rest(record, case, key))
            if base and case.get(key) != base[1] and (times := _times(record, base[0])):
                rest = tuple((k, v) for k, v in case.items() if k != key)
                found.append(Cost(record.impl, key, case[key], base[1], rest, *times))
    return found


def _is_without(key: str, value: Any) -> bool:
    return value in _WITHOUT or (isinstance(value, str) and value == ABSENT.get(key))


def _rest(record: Record, case: dict[str, Any], key: str) -> tuple:
    rest = sorted((k, str(v)) for k, v in case.items() if k != key)
    return record.op, record.impl, record.dtype, record.device, tuple(rest)


def _times(record: Record, base: Record) -> tuple[float, float] | None:
    mode = next((m for m in HEADLINE if record.time_of(m) and base.time_of(m)), None)
    return mode and (record.time_of(mode).median, base.time_of(mode).median)
