"""The same collective on several ranks: which event of one rank belongs to which event of the others.

Ranks of a group issue its collectives in one order. Events of the same group and name are therefore matched
by the number that the profiler recorded, else by order, where each rank has equally many; else by step and
order within it. What is left over is reported, not guessed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from fusescope.analysis.ranks.activities import ABSENT, COMMUNICATION, Activities, each_waits, plain

_UNPAIRED = ("send", "recv", "sendrecv", "coalesced", "generic")


@dataclass(frozen=True)
class Matched:
    """One row per event that was matched. which: number of the collective; rank: the event's; row: its row
    in the rank's activities. names, groups, sizes, element, waits: by number; size is that of the group, of
    which ``len`` may be present. left: sentence → events left over."""

    which: np.ndarray
    rank: np.ndarray
    row: np.ndarray
    names: list[str]
    groups: list[str]
    sizes: list[int]
    elements: list[tuple[int, str] | None]
    waits: np.ndarray
    left: dict[str, int]

    @property
    def count(self) -> int:
        return len(self.names)


def match(ranks: Mapping[int, Activities]) -> Matched:
    """Of two ranks or more. A group that only one of the ranks is in has nothing to match."""
    waiting: dict[tuple, dict[int, _Rows]] = {}
    facts: dict[tuple, dict] = {}
    for rank, of in ranks.items():
        for key, rows, about in _by_key(of):
            facts.setdefault(key, about)
            waiting.setdefault(key, {})[rank] = rows
    found, left = _Found(), Counter()
    for key, events in waiting.items():
        _match_key(key, events, facts[key], len(ranks), found, left)
    waits = {name: each_waits(name) for name in set(found.names)}
    none = np.zeros(0, np.int64)
    which, rank, row = (np.concatenate([none, *parts]) for parts in (found.which, found.rank, found.row))
    return Matched(
        which=which,
        rank=rank,
        row=row,
        names=found.names,
        groups=found.groups,
        sizes=found.sizes,
        elements=found.elements,
        waits=np.array([waits[name] for name in found.names], bool),
        left=dict(left),
    )


@dataclass(frozen=True)
class _Rows:
    """Of one rank and key: rows of its activities, ascending, with the number that the profiler recorded
    (ABSENT: none) and the step."""

    row: np.ndarray
    number: np.ndarray
    step: np.ndarray


@dataclass
class _Found:
    """Columns of ``Matched`` so far, by event as arrays and by collective."""

    which: list[np.ndarray] = field(default_factory=list)
    rank: list[np.ndarray] = field(default_factory=list)
    row: list[np.ndarray] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    elements: list[tuple[int, str] | None] = field(default_factory=list)


def _by_key(of: Activities) -> Iterator[tuple[tuple, _Rows, dict]]:
    """(key, its rows, what the first of them says) in the order in which the keys first appear."""
    rows = np.flatnonzero(of.kind == COMMUNICATION)
    if not len(rows):
        return
    pair = of.name[rows].astype(np.int64) * (len(of.collectives) + 1) + of.collective[rows] + 1
    pairs, first, which = np.unique(pair, return_index=True, return_inverse=True)
    keys: dict[tuple, int] = {}
    abouts, codes = [], np.empty(len(pairs), np.int64)
    for at in np.argsort(first).tolist():
        name, told = divmod(int(pairs[at]), len(of.collectives) + 1)
        about = of.collectives[told - 1] if told else {}
        key = _key(of.names[name], about)
        codes[at] = keys.setdefault(key, len(keys))
        if len(keys) > len(abouts):
            abouts.append(about)
    numbers = [about.get("number") for about in of.collectives]
    numbers = np.array([ABSENT if n is None else n for n in numbers] + [ABSENT], np.int64)
    code = codes[which.reshape(-1)]
    order = np.argsort(code, kind="stable")
    parts = np.split(rows[order], np.flatnonzero(np.diff(code[order])) + 1)
    for key, part, about in zip(keys, parts, abouts, strict=True):
        yield key, _Rows(part, numbers[of.collective[part]], of.step[part]), about


def _key(kernel: str, about: Mapping) -> tuple[str, str, str, str]:
    """(collective, group, its ranks, from → to)."""
    name = plain(about.get("name") or kernel)
    ends = (about.get("source_rank"), about.get("target_rank"))
    pair = f"{ends[0]}→{ends[1]}" if None not in ends and name in ("send", "recv", "sendrecv") else ""
    name = "send/recv" if pair else name
    return name, str(about.get("group_name", "")), str(about.get("group_ranks", "")), pair


def _match_key(
    key, events: dict[int, _Rows], about: Mapping, ranks: int, found: _Found, left: Counter
) -> None:
    name, group, members, pair = key
    total = sum(len(of.row) for of in events.values())
    size = int(about.get("group_size") or ranks)
    if pair:
        size = 2
    if size < 2 or (len(events) < 2 and members):
        left["belong to groups of which one rank alone was imported"] += total
        return
    if name in _UNPAIRED:
        left["are sends, receives or batches whose partner the trace does not name"] += total
        return
    if len(events) < 2:
        left["were seen on one rank alone"] += total
        return
    matched = _by_number(events)
    matched = _by_order(events) if matched is None else matched
    if matched is None:
        left["differ in number from rank to rank, and no step tells which belong together"] += total
        return
    which, rank, row = matched
    count = int(which[-1]) + 1
    found.which.append(which + len(found.names))
    found.rank.append(rank)
    found.row.append(row)
    for column, value in (
        (found.names, name),
        (found.groups, group),
        (found.sizes, size),
        (found.elements, _elements(about)),
    ):
        column += [value] * count
    if total > len(row):
        left["lie in steps that are not on every rank alike"] += total - len(row)


def _elements(about: Mapping) -> tuple[int, str] | None:
    """(elements, their type) of the larger side."""
    sides = [about[k] for k in ("elements_in", "elements_out") if k in about]
    return (max(sides), str(about.get("element", ""))) if sides else None


def _by_number(events: dict[int, _Rows]) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """(which from 0 on, rank, row) by event. None: some have no number, a rank has one twice, or no number is
    on two ranks."""
    number = np.concatenate([of.number for of in events.values()])
    if (number == ABSENT).any():
        return None
    place = np.repeat(np.arange(len(events)), [len(of.row) for of in events.values()])
    order = np.lexsort((place, number))
    number, place = number[order], place[order]
    again = number[1:] == number[:-1]
    if (again & (place[1:] == place[:-1])).any():
        return None
    shared = np.zeros(len(number), bool)
    shared[1:] |= again
    shared[:-1] |= again
    if not shared.any():
        return None
    row = np.concatenate([of.row for of in events.values()])[order][shared]
    which = np.cumsum(np.concatenate([[False], np.diff(number[shared]) != 0]))
    return which, np.array(list(events), np.int64)[place[shared]], row


def _by_order(events: dict[int, _Rows]) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """(which from 0 on, rank, row) by event: by order over the whole trace where all have as many, in the
    same steps; else within each common step that has as many on all."""
    steps = [np.unique(of.step, return_counts=True) for of in events.values()]
    alike = all(np.array_equal(there, steps[0][0]) for there, _ in steps)
    rows = [of.row for of in events.values()]
    if not (alike and len({len(r) for r in rows}) == 1):
        if any((of.step == ABSENT).all() for of in events.values()):
            return None
        many = [dict(zip(there.tolist(), counts.tolist())) for there, counts in steps]
        kept = [s for s, n in many[0].items() if s != ABSENT and all(other.get(s) == n for other in many[1:])]
        if not kept:
            return None
        rows = []
        for of in events.values():
            mine = np.flatnonzero(np.isin(of.step, kept))
            rows.append(of.row[mine[np.argsort(of.step[mine], kind="stable")]])
    rank = np.tile(np.array(list(events), np.int64), len(rows[0]))
    return np.repeat(np.arange(len(rows[0])), len(rows)), rank, np.stack(rows, axis=1).reshape(-1)
