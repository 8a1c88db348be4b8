"""A device's time without counting anything twice: compute, communication, copies and idle time by cause,
whole and by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fusescope.analysis.profile.streams import Concurrency, concurrency
from fusescope.analysis.ranks import intervals
from fusescope.analysis.ranks.activities import ABSENT, is_communication

BUSY = ("compute_ns", "overlapped_ns", "exposed_ns", "memory_ns")
"""Parts of the time in which a device works, as of a rank (ranks.breakdown): compute alone, compute and
communication at once, communication without compute, copies without either."""


@dataclass(frozen=True)
class Activities:
    """Kernels and copies of all devices: absolute ns, int64 arrays of one length. device, stream and step:
    ABSENT where unknown; name: places in ``names`` (-1: none); copy, told: whether it is a copy or fill, and
    whether its arguments name a collective (bool)."""

    begin: np.ndarray
    end: np.ndarray
    device: np.ndarray
    stream: np.ndarray
    step: np.ndarray
    name: np.ndarray
    copy: np.ndarray
    told: np.ndarray
    names: Sequence[str]


@dataclass(frozen=True)
class Gaps:
    """When the devices did nothing: ns, int64, and the step of what came after; cause: places in
    ``causes``."""

    length: np.ndarray
    step: np.ndarray
    cause: np.ndarray
    causes: Sequence[str]


@dataclass(frozen=True)
class DeviceTime:
    """whole: part → ns, BUSY and idle_<cause>_ns, which add up to the devices' time from their first to their
    last activity; steps: the same by step, None for what no step launched, which add up to ``whole``.
    communication: name → (calls, ns) of the kernels that communicate, waits included, longest first;
    kernel_ns: the sum over all kernels, concurrent ones each; concurrency: of each device with several
    streams."""

    whole: Mapping[str, int]
    steps: Mapping[int | None, Mapping[str, int]]
    communication: Mapping[str, tuple[int, int]]
    kernel_ns: int
    concurrency: tuple[Concurrency, ...] = ()

    @property
    def communication_ns(self) -> int:
        return sum(ns for _, ns in self.communication.values())


def read(found: tuple[Mapping, Mapping] | None) -> DeviceTime | None:
    """The same of the columns that store.timeline.device_activities gives."""
    return None if found is None else split(Activities(**found[0]), Gaps(**found[1]))


def split(of: Activities, gaps: Gaps) -> DeviceTime:
    """Each instant of a device once: compute before communication before copies, both where compute and
    communication run at once; of several activities of one kind, to the step of the one that began first."""
    talks = of.told | np.isin(of.name, _communicating(of.names))
    kind = np.where(of.copy, 2, np.where(talks, 1, 0))
    parts = np.zeros((len(of.begin), len(BUSY)), np.int64)
    for device in np.unique(of.device):
        mine = of.device == device
        compute, talk, kernels = (
            intervals.union(of.begin[rows], of.end[rows])
            for rows in (mine & (kind == 0), mine & (kind == 1), mine & (kind != 2))
        )
        for number, others in ((0, talk), (1, compute), (2, kernels)):
            rows = np.flatnonzero(mine & (kind == number))
            rows = rows[np.argsort(of.begin[rows], kind="stable")]
            begin, end = _uncovered(of.begin[rows], of.end[rows])
            hidden = intervals.covered(begin, end, others)
            alone = end - begin - hidden
            if number == 0:
                parts[rows, 0], parts[rows, 1] = alone, hidden
            else:
                parts[rows, number + 1] = alone
    columns = {name: parts[:, n] for n, name in enumerate(BUSY)}
    idle = {f"idle_{c}_ns": np.where(gaps.cause == n, gaps.length, 0) for n, c in enumerate(gaps.causes)}
    each = np.unique(np.concatenate([of.step, gaps.step]))
    sums = {name: _by_step(each, of.step, values) for name, values in columns.items()}
    sums |= {name: _by_step(each, gaps.step, values) for name, values in idle.items()}
    steps = {
        None if step == ABSENT else step: {name: int(values[n]) for name, values in sums.items()}
        for n, step in enumerate(each.tolist())
    }
    whole = {name: int(values.sum()) for name, values in sums.items()}
    length = of.end - of.begin
    rows = np.flatnonzero(talks & ~of.copy)
    at_once = concurrency(of.begin, of.end, of.device, of.stream, of.copy)
    return DeviceTime(whole, steps, _by_name(of, rows, length), int(length[~of.copy].sum()), at_once)


def _by_step(each: np.ndarray, step: np.ndarray, ns: np.ndarray) -> np.ndarray:
    found = np.zeros(len(each), np.int64)
    np.add.at(found, np.searchsorted(each, step), ns)
    return found


def _communicating(names: Sequence[str]) -> list[int]:
    return [n for n, name in enumerate(names) if is_communication(name, on_device=True)]


def _uncovered(begin: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What of each interval, by begin, none before it covers: disjoint, and as long as their union."""
    if not len(begin):
        return begin, end
    reach = np.maximum.accumulate(end)
    begin = np.maximum(begin, np.concatenate([begin[:1], reach[:-1]]))
    return begin, np.maximum(begin, end)


def _by_name(of: Activities, rows: np.ndarray, length: np.ndarray) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for code in np.unique(of.name[rows]).tolist():
        mine = rows[of.name[rows] == code]
        name = of.names[code] if code >= 0 else "an unnamed kernel"
        found[name] = len(mine), int(length[mine].sum())
    return dict(sorted(found.items(), key=lambda one: -one[1][1]))
