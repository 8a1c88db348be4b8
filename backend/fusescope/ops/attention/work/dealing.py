"""Who does what: work dealt to workers, some of which share a multiprocessor, and cut where a limit says so.

Costs are in steps of a worker while the other worker of its multiprocessor is busy too.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

_ALONE = (
    0.6  # of a step, where the multiprocessor's other worker has nothing left to do: fitted as in items.py
)
_LEAST_PIECE = 3.0  # steps
_SIMULATED = 1 << 12  # last items, each of which is placed for itself


class Teams(NamedTuple):
    """``workers``, of which ``per_sm`` share a multiprocessor: with b blocks worker t is one of block
    t % b."""

    workers: int
    per_sm: int

    @property
    def blocks(self) -> int:
        return -(-self.workers // self.per_sm)

    @property
    def alone(self) -> float:
        """What a step takes of a worker whose multiprocessor does nothing else."""
        return _ALONE if self.per_sm > 1 else 1.0

    def of(self, block: int) -> range:
        return range(block, self.workers, self.blocks)

    def time(self, done: list[float], block: int) -> float:
        """Until a block has done what its workers are given."""
        each = [done[worker] for worker in self.of(block)]
        both = min(each) if len(each) > 1 else 0.0
        return both + self.alone * (max(each) - both)

    def last(self, done: list[float]) -> float:
        """Until all blocks have."""
        return max(self.time(done, block) for block in range(self.blocks))

    def rooms(self, done: list[float], limit: float) -> list[tuple[float, int]]:
        """(what more a worker may be given for its block to have done all by ``limit``, worker), the most
        room first."""
        return sorted(((self._room(done, w, limit), w) for w in range(self.workers)), reverse=True)

    def _room(self, done: list[float], worker: int, limit: float) -> float:
        other = max((done[w] for w in self.of(worker % self.blocks) if w != worker), default=0.0)
        if other > limit:
            limit = (limit - self.alone * other) / (1 - self.alone)
        return limit - done[worker]


def place(took, teams: Teams, limit: float = np.inf):
    """(the worker of each item, −1 of those with which its block would be busy beyond the limit; what each
    worker does): each to the worker with less to do of the block that has done first."""
    sure = max(0, len(took) - _SIMULATED) // teams.workers * teams.workers
    turn, place = np.divmod(np.arange(sure), teams.workers)
    where = np.full(len(took), -1)
    where[:sure] = np.where(turn % 2, teams.workers - 1 - place, place)
    done = np.bincount(where[:sure], took[:sure], teams.workers).tolist()
    free = [(teams.time(done, block), block) for block in range(teams.blocks)]
    heapq.heapify(free)
    for i, each in enumerate(took[sure:].tolist(), sure):
        _, block = free[0]
        worker = min(teams.of(block), key=done.__getitem__)
        done[worker] += each
        if (until := teams.time(done, block)) > limit:
            done[worker] -= each
        else:
            where[i] = worker
            heapq.heapreplace(free, (until, block))
    return where, done


def fill(
    spent, ranges: list[tuple[int, int]], rooms: list[tuple[float, int]], overhead: float
) -> Iterator[list[tuple[int, int, int, float]] | None]:
    """Each range of steps cut to fit into the rooms, one after another (McNaughton 1959): (first, steps,
    worker, cost) of its pieces; None once there is no more room.

    spent: float64, what all steps before each one take, ascending; overhead: what a piece takes besides.
    """
    left = iter(rooms)
    room, worker = next(left, (0.0, -1))
    for first, end in ranges:
        pieces = []
        while first < end or not pieces:
            last = int(np.searchsorted(spent, spent[first] + room - overhead, "right")) - 1
            if last < end and spent[end] - spent[last] < _LEAST_PIECE:
                last -= round(_LEAST_PIECE)
            if room < overhead or (last < end and spent[max(first, last)] - spent[first] < _LEAST_PIECE):
                room, worker = next(left, (0.0, -1))
                if worker < 0:
                    yield None
                    return
                continue
            last = min(last, end)
            cost = float(spent[last] - spent[first]) + overhead
            pieces.append((first, last - first, worker, cost))
            room, first = room - cost, last
        yield pieces
