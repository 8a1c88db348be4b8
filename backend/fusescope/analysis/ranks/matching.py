"""The same collective on several ranks: which event of one rank belongs to which event of the others.

Ranks of a group issue its collectives in one order. Events of the same group and name are therefore matched
by the number that the profiler recorded, else by order, where each rank has equally many; else by step and
order within it. What is left over is reported, not guessed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

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
    waiting: dict[tuple, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    facts: dict[tuple, dict] = {}
    for rank, of in ranks.items():
        keys: dict[tuple[int, int], tuple] = {}
        rows = np.flatnonzero(of.kind == COMMUNICATION)
        for row, name, told in zip(rows.tolist(), of.name[rows].tolist(), of.collective[rows].tolist()):
            key = keys.get((name, told))
            if key is None:
                about = of.collectives[told] if told >= 0 else {}
                key = keys[name, told] = _key(of.names[name], about)
                facts.setdefault(key, about)
            waiting[key][rank].append(row)
    found: dict[str, list] = defaultdict(list)
    left: Counter = Counter()
    for key, events in waiting.items():
        _match_key(key, events, facts[key], ranks, found, left)
    return Matched(
        which=np.array(found["which"], np.int64),
        rank=np.array(found["rank"], np.int64),
        row=np.array(found["row"], np.int64),
        names=found["names"],
        groups=found["groups"],
        sizes=found["sizes"],
        elements=found["elements"],
        waits=np.array([each_waits(name) for name in found["names"]], bool),
        left=dict(left),
    )


def _key(kernel: str, about: Mapping) -> tuple[str, str, str, str]:
    """(collective, group, its ranks, from → to)."""
    name = plain(about.get("name") or kernel)
    ends = (about.get("source_rank"), about.get("target_rank"))
    pair = f"{ends[0]}→{ends[1]}" if None not in ends and name in ("send", "recv", "sendrecv") else ""
    name = "send/recv" if pair else name
    return name, str(about.get("group_name", "")), str(about.get("group_ranks", "")), pair


def _match_key(key, events: dict[int, list[int]], about: Mapping, ranks, found: dict, left: Counter) -> None:
    name, group, members, pair = key
    total = sum(map(len, events.values()))
    size = int(about.get("group_size") or len(ranks))
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
    matched = _by_number(events, ranks) or _by_order(events, ranks)
    if matched is None:
        left["differ in number from rank to rank, and no step tells which belong together"] += total
        return
    there = 0
    for rows in matched:
        number = len(found["names"])
        for column, value in (
            ("names", name),
            ("groups", group),
            ("sizes", size),
            ("elements", _elements(about)),
        ):
            found[column].append(value)
        for rank, row in rows.items():
            found["which"].append(number)
            found["rank"].append(rank)
            found["row"].append(row)
        there += len(rows)
    if total > there:
        left["lie in steps that are not on every rank alike"] += total - there


def _elements(about: Mapping) -> tuple[int, str] | None:
    """(elements, their type) of the larger side."""
    sides = [about[k] for k in ("elements_in", "elements_out") if k in about]
    return (max(sides), str(about.get("element", ""))) if sides else None


def _by_number(events: dict[int, list[int]], ranks) -> list[dict[int, int]] | None:
    numbered: dict[int, dict[int, int]] = defaultdict(dict)
    for rank, rows in events.items():
        of = ranks[rank]
        for row in rows:
            told = of.collective[row]
            number = of.collectives[told].get("number") if told >= 0 else None
            if number is None or rank in numbered[number]:
                return None
            numbered[number][rank] = row
    return [rows for _, rows in sorted(numbered.items()) if len(rows) > 1]


def _by_order(events: dict[int, list[int]], ranks) -> list[dict[int, int]] | None:
    """By order over the whole trace where all have as many, in the same steps; else within each common
    step."""
    steps = {rank: ranks[rank].step[rows] for rank, rows in events.items()}
    alike = len({frozenset(s.tolist()) for s in steps.values()}) == 1
    if alike and len({len(rows) for rows in events.values()}) == 1:
        return [dict(zip(events, rows)) for rows in zip(*events.values())]
    if any((s == ABSENT).all() for s in steps.values()):
        return None
    matched = []
    for step in sorted(set.intersection(*(set(s.tolist()) for s in steps.values())) - {ABSENT}):
        parts = [np.array(rows)[steps[rank] == step].tolist() for rank, rows in events.items()]
        if len({len(p) for p in parts}) == 1:
            matched += [dict(zip(events, rows)) for rows in zip(*parts)]
    return matched or None
