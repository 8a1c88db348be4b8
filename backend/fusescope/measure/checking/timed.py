"""What timed calls of one implementation are compared with: the values that its inputs hold during the
timing, and now and then others in the same tensors.

A callable that returns a result of an earlier call, because inputs and addresses are those of then, is right
on values that never change. One look in eight is therefore harsh: before the call whose result is looked at,
that of another call is overwritten with NaN, and the inputs get other values.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

from fusescope.measure import failures
from fusescope.measure.checking import outputs, repeated
from fusescope.measure.checking.check import Case

HARSH = 8  # looks of which one is harsh


class Values:
    """One set of values in the inputs of a case, and what results on them have to be."""

    def __init__(self, case: Case):
        self.inputs, self.kept, self.wrong = case.inputs, case.kept(), case.comparison()


class Timed:
    """The checks around the timed calls of ``run``. first: the values of its inputs, None where results are
    not compared; other: further ones that it is right on. overwrite: whether earlier results may be. changed:
    see settings.kept."""

    def __init__(
        self,
        run: Callable[[], Any],
        first: Values | None,
        other: Values | None,
        overwrite: bool,
        changed: MutableMapping[str, str],
        seed: str,
    ):
        self._run, self._first, self._other, self._overwrite = run, first, other, overwrite
        self.changed, self._random, self._now = changed, random.Random(seed), first
        self.compares, self._harsh, self._harsh_ones = first is not None, False, 0
        self.found_changed: list[str] = []  # inputs that were not as they should be before a harsh look

    @contextmanager
    def around(self, look: bool, last: bool = False) -> Iterator[None]:
        """Around calls of which the result of the last is looked at or not. ``last``: after the timing, where
        a harsh look is owed if none was."""
        drawn = look and not self._random.randrange(HARSH)
        self._harsh = drawn or (last and not self._harsh_ones)
        self._harsh_ones += self._harsh
        try:
            yield
        finally:
            changed = self._first_again()
        if changed:
            raise failures.Failed(f"unstable: a timed call changed its input {', '.join(changed)}", "wrong")

    def prepared(self, call: Callable[[], Any]) -> bool:
        """Before a harsh look: the result of ``call`` is overwritten with NaN and the inputs get the other
        values. Whether the next look is one."""
        if self._harsh and self._overwrite:
            outputs.spoil(call(), self._first.inputs)
        if self._harsh and self._other:
            self.found_changed += self._first.kept.restore()
            self._other.kept.restore()
            self._now = self._other
        return self._harsh

    def _first_again(self) -> list[str]:
        """Put the first values back; the inputs that calls on the others changed."""
        if self._now is self._first:
            return []
        changed, self._now = self._other.kept.restore(), self._first
        self._first.kept.restore()
        return changed

    def wrong(self, out: Any) -> str | None:
        """What is wrong with the result of a timed call, else None. Raises Failed where the inputs are not
        what they were, which says nothing about this implementation."""
        wrong = self._now.wrong(self._run, out)
        if wrong and (changed := self._now.kept.restore()):
            raise failures.Failed(
                f"the input {', '.join(changed)} changed during the timing, by this implementation or "
                "another of the comparison"
            )
        if wrong and self._harsh:
            return f"{wrong} (on other values in the same tensors, the result of another call overwritten)"
        return wrong

    def kept_results(self) -> str | None:
        """What shows, after the timing, that repeated calls are answered from earlier ones; else None. Asked
        where other values may stand in the inputs."""
        if not (self._overwrite and self._other):
            return None
        with failures.contained():
            return repeated.slower_on_others(self._run, self._first.kept, self._random)
