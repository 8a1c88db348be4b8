"""Which worker records what next: entries go to workers, one per GPU, as these become free; a sweep is cut
into parts."""

from __future__ import annotations

import heapq
import threading
from dataclasses import dataclass

from recordings import Entry

_NEED = 0.7  # of its seconds: with less time than that an entry is not begun
_NEED_TRAVERSE_S = 60.0  # a traverse is worth beginning with that much


@dataclass(frozen=True)
class Share:
    """What one worker does next: an entry, or the positions [start, stop) of a sweep's order, which is
    random: which GPU measured a scheme says nothing about the scheme.
    """

    entry: Entry
    part: tuple[int, int] | None
    schemes: int
    seconds: float  # about how long it takes


class Queue:
    """Hands out ``entries`` in their order to ``workers`` workers, which have so many seconds; safe to be
    asked by all at once."""

    def __init__(self, entries: list[Entry], workers: int, seconds: float):
        self.workers, self.seconds = workers, seconds
        self._given = 0.0  # seconds of all that was handed out
        self._left = list(entries)
        self._next = {id(e): 0 for e in entries}  # how many of a traverse's due schemes were handed out
        self._pace: dict[int, float] = {}  # of a traverse, seconds that it took over those that were expected
        self._any_pace = 1.0  # the last that was learned, for traverses of which nothing is known yet
        self._lock = threading.Lock()

    def take(self, left_s: float) -> Share | None:
        """The first entry that a worker with so many seconds left can do, or a part of it; None where there
        is none."""
        with self._lock:
            share = next(
                (s for e in list(self._left) if (s := self._part(e, left_s) or self._all(e, left_s))), None
            )
            self._given += share.seconds if share else 0.0
            return share

    def learn(self, share: Share, schemes: int, seconds: float) -> None:
        """How long a part of a traverse really took for how many schemes, its start included: the next are
        cut by that."""
        sampling = share.entry.seconds(schemes) - share.entry.seconds(0)
        if schemes and sampling > 0:
            with self._lock:
                self._any_pace = max(0.2, min(5.0, (seconds - share.entry.seconds(0)) / sampling))
                self._pace[id(share.entry)] = self._any_pace

    def rest(self) -> list[tuple[Entry, float]]:
        """What was not handed out, and about how many seconds of one worker that would take."""
        with self._lock:
            return [(e, self._seconds(e)) for e in self._left]

    def _seconds(self, e: Entry, schemes: int | None = None) -> float:
        if not e.traverse:
            return e.seconds()
        count = len(e.due) - self._next[id(e)] if schemes is None else schemes
        return e.seconds(0) + self._pace.get(id(e), self._any_pace) * (e.seconds(count) - e.seconds(0))

    def _all(self, e: Entry, left_s: float) -> Share | None:
        if e.traverse and self.workers > 1:
            return None
        seconds = self._seconds(e)
        if left_s < (min(_NEED * seconds, _NEED_TRAVERSE_S) if e.traverse else _NEED * seconds):
            return None
        self._left.remove(e)
        return Share(e, None, len(e.due) if e.traverse else 0, seconds)

    def _part(self, e: Entry, left_s: float) -> Share | None:
        """As many schemes as fit into the time, but no more than let all workers end at about the same
        time."""
        if not e.traverse or self.workers == 1:
            return None
        begun = self._next[id(e)]
        start, count = e.seconds(0), len(e.due) - begun
        end = start + (self._given + sum(self._seconds(e) for e in self._left)) / self.workers
        fair = max(end - (self.seconds - left_s), 3 * start)
        each = (self._seconds(e) - start) / count
        if (fits := int((left_s - start) / each)) < count:
            if left_s < start + min(_NEED_TRAVERSE_S, count * each) / 2:
                return None
            count = fits
        if self._seconds(e, count) > fair + start:  # another worker would begin the rest
            count = max(1, round((fair - start) / each))
        positions = e.due[begun : begun + count]
        self._next[id(e)] += count
        if begun + count == len(e.due):
            self._left.remove(e)
        return Share(e, (positions[0], positions[-1] + 1), count, start + count * each)


def simulate(queue: Queue) -> list[tuple[int, float, Share]]:
    """(worker, when it begins, what) in the order of beginning, where everything takes as long as
    expected."""
    free, found = [(0.0, worker) for worker in range(queue.workers)], []
    while free:
        now, worker = heapq.heappop(free)
        if share := queue.take(queue.seconds - now):
            found.append((worker, now, share))
            heapq.heappush(free, (now + min(share.seconds, queue.seconds - now), worker))
    return found
