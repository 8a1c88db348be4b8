"""Search by predictions: the lower the predicted time and the larger its uncertainty, the sooner a scheme is
tried.

Additive segment costs are the prior (with a deviation each); XGBoost, trained on what is known so far,
corrects them where cross-validation says that it does better. Of each batch most are the lowest lower bounds,
some the minimum under costs drawn from the posterior (Thompson, Biometrika 25, 1933), one is drawn at random.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import numpy as np

from fusescope.search.learning import boosted, features
from fusescope.search.learning.additive import Additive, columns
from fusescope.search.learning.strategy import BATCH

_FIRST = 16  # drawn before anything is known: as many as there are places to cut, and two
_BOOSTED_FROM = 48  # evaluations below which trees know nothing that the sums do not
_LEARN_AGAIN = 1.25  # times as many evaluations as at the last training of the trees
_WEIGH_AGAIN = 1.33  # likewise for the prior of the segment costs
_DEVIATIONS = (0.5, 2.0)  # deviations by which a bound is below the mean, drawn for each batch


class Guided:
    """A ``Strategy`` over distinct canonical codes; ``trees``: with XGBoost, else with segment costs
    alone."""

    def __init__(self, candidates: Sequence[str], seed: int, trees: bool = True):
        self._rng, self._numbers, self._seed = random.Random(seed), np.random.default_rng(seed), seed
        shuffled = self._rng.sample(list(candidates), len(candidates))
        self._codes = _spread(shuffled, min(_FIRST, len(shuffled)), self._rng)
        self._columns: np.ndarray | None = None  # of all candidates, made when first needed
        self._open = np.ones(len(self._codes), bool)  # not proposed yet
        self._known: dict[str, float] = {}
        self._prior, self._weighed, self._trained = None, 0, 0
        self._trees, self._share, self._with_trees = None, 0.0, trees
        if trees:
            boosted.require()  # what is missing is said now, not in the middle of a search

    def ask(self, count: int) -> list[str]:
        left = np.flatnonzero(self._open)
        first = [i for i in left[:count] if i < _FIRST]
        chosen = first or (self._propose(left, count) if self._known else list(left[:count]))
        self._open[chosen] = False
        return [self._codes[i] for i in chosen]

    def tell(self, times: Mapping[str, float | None]) -> None:
        self._known.update({c: ms for c, ms in times.items() if ms is not None})

    def _propose(self, left: np.ndarray, count: int) -> list[int]:
        if len(left) <= count:
            return list(left)
        if self._columns is None:
            self._columns = columns(self._codes)
        rows = self._columns[left]
        sums = self._sums()
        mean, deviation = sums.predict(rows)
        moved = self._corrected(mean, left)
        bound = moved - self._rng.uniform(*_DEVIATIONS) * deviation
        drawn = sums.draw(rows, self._numbers) + (moved - mean)
        blind, thompson = int(count >= BATCH), count // 4
        picks = list(np.argpartition(bound, min(count, len(left) - 1))[:count])
        picks = sorted(picks, key=lambda i: bound[i])[: count - thompson - blind]
        for i in np.argsort(drawn, kind="stable")[:count]:
            if len(picks) < count - blind and i not in picks:
                picks.append(i)
        while len(picks) < count:
            i = self._rng.randrange(len(left))
            if i not in picks:
                picks.append(i)
        return [int(left[i]) for i in picks]

    def _sums(self) -> Additive:
        """Segment costs; the prior is weighed again when a third more is known."""
        if self._prior is None or len(self._known) >= _WEIGH_AGAIN * self._weighed:
            self._weighed, found = len(self._known), Additive(self._known)
            self._prior = found.prior
            return found
        return Additive(self._known, self._prior)

    def _corrected(self, mean: np.ndarray, left: np.ndarray) -> np.ndarray:
        """The additive means, moved towards the trees' by the share that is best on held-out codes."""
        if not self._with_trees or len(self._known) < _BOOSTED_FROM:
            return mean
        if len(self._known) >= _LEARN_AGAIN * self._trained:
            self._learn()
        if not self._share or not (mean > 0).all():
            return mean
        trees = self._trees.log_ms([self._codes[i] for i in left])
        return mean ** (1 - self._share) * np.exp(trees) ** self._share

    def _learn(self) -> None:
        codes = self._rng.sample(list(self._known), len(self._known))
        test, rest = codes[: len(codes) // 4], {c: self._known[c] for c in codes[len(codes) // 4 :]}
        truth = np.log([self._known[c] for c in test])
        sums = np.log(np.maximum(Additive(rest, self._prior).predict(test)[0], 1e-9))
        trees = boosted.train(rest, self._seed).log_ms(test)
        errors = {
            s: float(np.mean(((1 - s) * sums + s * trees - truth) ** 2)) for s in (0.0, 0.25, 0.5, 0.75, 1.0)
        }
        self._share = min(errors, key=errors.get)
        self._trees = boosted.train(self._known, self._seed) if self._share else None
        self._trained = len(self._known)


def _spread(codes: list[str], count: int, rng: random.Random) -> list[str]:
    """The codes with ``count`` at the front that differ from one another: of 32 drawn the one least like its
    predecessors."""
    choices = features.structure(codes)
    least = np.full(
        len(codes), features.STRUCTURE + 1
    )  # choices not in common with the most alike of the chosen; 0 of these
    chosen: list[int] = []
    for _ in range(count):
        some = rng.sample(range(len(codes)), min(32, len(codes)))
        best = max(some, key=lambda i: least[i])
        if not least[best]:  # all of them were chosen
            best = int(least.argmax())
        chosen.append(best)
        least = np.minimum(least, (choices != choices[best]).sum(1))
    taken = set(chosen)
    return [codes[i] for i in chosen] + [c for i, c in enumerate(codes) if i not in taken]
