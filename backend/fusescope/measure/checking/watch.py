"""What is timed stays right: results of timed calls are compared, in every mode, during the sampling and
after it.

A ``Watched`` sampler stops at places drawn at random and has the result of the last timed call compared, for
at most a tenth of the time that it samples; after it, until 200 of quick calls are compared. A callable
cannot know which of its calls is looked at: it is called in the same way by the same code. What deviates once
is wrong, and gets no time. Some looks are harsh (timed.py).
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from typing import Any

from fusescope.measure import failures
from fusescope.measure.checking import settings
from fusescope.measure.checking.timed import Timed
from fusescope.measure.timing.timer import Look, Sampler

SHARE = 0.1  # of the time spent sampling goes into looking
WANTED = 200  # results per mode: a callable wrong in 3 % of its calls passes one time in 440
LEAST_S = 0.4  # that looking may take after any sampling, however short: WANTED looks of 2 ms, as on a GPU
OVERTIME_S = 1.0  # beyond what it may take, on a machine that is so loaded


class Watched(Sampler):
    """A sampler that has results of its timed calls compared, and settings put back, by ``timed``.

    ``after_turn`` is called behind each piece of a turn, when the device still runs as it did. What the
    callable raises to end the process (SystemExit, KeyboardInterrupt) becomes failures.Failed.
    """

    def __init__(
        self,
        sampler: Sampler,
        timed: Timed,
        seed: str,
        after_turn: Callable[[], None] = lambda: None,
    ):
        self.mode, self.cost_ms, self.compared = sampler.mode, sampler.cost_ms, 0
        self._sampler, self.timed, self._after = sampler, timed, after_turn
        self._random = random.Random(seed)
        self._sampled_s = self._looked_s = 0.0

    def take(self, count: int, look: Look | None = None) -> list[float]:
        """``count`` samples, with as many looks between them as the share allows."""
        with settings.kept(self.timed.changed):
            return self._taken(count)

    def _taken(self, count: int) -> list[float]:
        found: list[float] = []
        while (left := count - len(found)) > 0:
            due = self.timed.compares and self._looked_s <= SHARE * self._sampled_s
            if found:
                self._looked_s += self.cost_ms / 1e3  # the untimed call before another piece
            found += self._piece(self._random.randint(1, left) if due else left, due)
        return found

    def moved(self, shift: int) -> None:
        with failures.contained(), settings.kept(self.timed.changed):
            self._sampler.moved(shift)

    def finish(self) -> None:
        """Compare the result of at least one more call, and of further ones up to WANTED in a tenth of the
        time sampled or LEAST_S: what went wrong late or rarely is found here. Each counts as the shortest
        took, so that as many are compared on a loaded machine as on an idle one."""
        allowed, count, shortest = max(LEAST_S, SHARE * self._sampled_s), 0, math.inf
        latest = time.monotonic() + allowed + OVERTIME_S
        while self.timed.compares:
            begun = time.monotonic()
            self._piece(1, True, last=True)
            now = time.monotonic()
            count, shortest = count + 1, min(shortest, now - begun)
            if self.compared >= WANTED or count * shortest >= allowed or now >= latest:
                return

    def prepared(self, call: Callable[[], Any]) -> bool:
        """See Look; counted as looking."""
        begun = time.monotonic()
        done = self.timed.prepared(call)
        self._looked_s += time.monotonic() - begun
        return done

    def __call__(self, out: Any) -> None:
        """See Look."""
        begun = time.monotonic()
        wrong = self.timed.wrong(out)
        self._looked_s += time.monotonic() - begun
        if wrong:
            before = f"{self.compared} compared before it" if self.compared else "none compared before it"
            raise failures.Failed(
                f"unstable: it was right when checked, and a timed call ({self.mode}, {before}) was wrong: "
                f"{wrong}",
                "wrong",
            )
        self.compared += 1

    def _piece(self, count: int, look: bool, last: bool = False) -> list[float]:
        begun = time.monotonic()
        with failures.contained(), self.timed.around(look, last):
            entered = time.monotonic()
            found = self._sampler.take(count, self if look else None)
            left = time.monotonic()
        self._sampled_s += left - entered
        self._looked_s += time.monotonic() - left + entered - begun
        self._after()
        return found
