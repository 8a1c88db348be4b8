"""What keeps the ratio of two matched cases from being a verdict: another device, another workload."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fusescope.core.records import Record, Run
from fusescope.core.schema.cases import FOLLOWS, value, written

_OFF = ("none", "no")
"""Values of an option that a case older than the option means by not having it."""
_SHOWN = 3


@dataclass(frozen=True)
class Unlike:
    """How two matched cases differ besides their code. devices: the base's and the other's name, None where
    they are one; workload: (key, the base's value, the other's) of each key with another value.

    All parameters of a case and the dtype say what is computed, so none of them can be left out for a
    verdict; the kind of device and its name are the hardware. What does not belong to the case (commit,
    driver, tags, seed, cache mode) never keeps two cases apart: ``conditions.differences`` names it.
    """

    devices: tuple[str, str] | None = None
    workload: tuple[tuple[str, str, str], ...] = ()

    @property
    def text(self) -> str:
        """ "other workload: heads 12 against 8", "other device: NVIDIA H200 against NVIDIA B200"."""
        parts = []
        if self.workload:
            parts.append(f"other workload: {', '.join(f'{k} {a} against {b}' for k, a, b in self.workload)}")
        if self.devices:
            parts.append(f"other device: {self.devices[0]} against {self.devices[1]}")
        return "; ".join(parts)


def unlike(base: tuple[Run, Record], other: tuple[Run, Record]) -> Unlike | None:
    """How two matched cases differ besides their code; None where a ratio of them is a verdict on it."""
    (run, record), (run_2, record_2) = base, other
    devices = (run.device_name, run_2.device_name)
    kinds = (record.device.partition(":")[0], record_2.device.partition(":")[0])
    if devices[0] == devices[1] and kinds[0] != kinds[1]:
        devices = kinds
    told = of_specs((record.case, record.dtype), (record_2.case, record_2.dtype))
    different = devices if devices[0] != devices[1] else None
    return Unlike(different, told) if told or different else None


def of_specs(
    base: tuple[Mapping[str, Any], str], other: tuple[Mapping[str, Any], str]
) -> tuple[tuple[str, str, str], ...]:
    """(key, the base's value, the other's) of each parameter that differs between two cases with their
    dtypes; one that follows another is left out where that says the same."""
    (case, dtype), (case_2, dtype_2) = base, other
    keys = [k for k in dict.fromkeys([*case, *case_2]) if k not in FOLLOWS]
    keys += [k for k in FOLLOWS if k in case or k in case_2]
    found = []
    for key in keys:
        a, b = (_meant(one, key) for one in (case, case_2))
        if a != b and not (None in (a, b) and (a in _OFF or b in _OFF)):
            found.append((key, *("unknown" if v is None else written(v) for v in (a, b))))
    if dtype != dtype_2:
        found.append(("dtype", dtype, dtype_2))
    return tuple((k, a, b) for k, a, b in found if not _told(k, a, b, found))


def together(found: Iterable[Unlike | None]) -> Unlike:
    """What several pairs of cases differ in, each key with all its values: "12 and 32" against "8"."""
    known = [one for one in found if one]
    devices = next((one.devices for one in known if one.devices), None)
    values: dict[str, tuple[dict, dict]] = {}
    for one in known:
        for key, a, b in one.workload:
            left, right = values.setdefault(key, ({}, {}))
            left[a] = right[b] = None
    return Unlike(devices, tuple((key, _few(a), _few(b)) for key, (a, b) in values.items()))


def apart(base: Iterable[Record], other: Iterable[Record]) -> str:
    """The parameters that have no value in both: "batch 16 against 1, seq 2,048 against 512", "" where each
    has one or the operators differ."""
    sides = (list(base), list(other))
    if len({r.op for side in sides for r in side}) != 1:
        return ""
    parts = []
    for key in dict.fromkeys(k for side in sides for r in side for k in r.case if k not in FOLLOWS):
        a, b = (
            {written(meant): None for r in side if (meant := _meant(r.case, key)) is not None}
            for side in sides
        )
        if a and b and not a.keys() & b.keys():
            parts.append(f"{key} {_few(a)} against {_few(b)}")
    return ", ".join(parts)


def _meant(case, key: str):
    return value(case, key) if key in case or key not in FOLLOWS else case.get(FOLLOWS[key])


def _told(key: str, a: str, b: str, found: list[tuple[str, str, str]]) -> bool:
    """Whether what this key follows says the same."""
    return key in FOLLOWS and (FOLLOWS[key], a, b) in found


def _few(values: Collection[str]) -> str:
    *first, last = list(values)[:_SHOWN]
    if len(values) > _SHOWN:
        first, last = [*first, last], f"{len(values) - _SHOWN} more"
    return f"{', '.join(first)} and {last}" if first else last
