"""Searching for the fastest scheme among candidates, whether the times come from a device or from a recorded
sweep (see strategy.py)."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fusescope.core.schema import check_int
from fusescope.search import encoding
from fusescope.search.learning.evolve import Evolutionary
from fusescope.search.learning.guided import Guided
from fusescope.search.learning.strategy import BATCH, Listed, Strategy

STRATEGIES = {
    "guided": "a cost model (additive segment costs and XGBoost) proposes what may be fastest "
    "and what it is uncertain of",
    "additive": "the same with segment costs alone; needs no xgboost",
    "evolutionary": "the best so far are crossed and mutated at their cuts",
    "random": "drawn at random, none twice",
    "exhaustive": "every candidate, in the order of the codes",
}


@dataclass(frozen=True)
class Step:
    """One evaluation: the ``number``-th, from 1. ms: None where it failed; best_*: of all so far."""

    number: int
    code: str
    ms: float | None
    best_code: str | None
    best_ms: float | None


def make(strategy: str, candidates: Iterable[str | int], seed: int = 0) -> Strategy:
    """A strategy over the distinct schemes among the candidates. ValueError for an unknown name or no
    candidate; ModuleNotFoundError where it needs a package that is not here."""
    check(strategy)
    distinct = encoding.distinct(candidates)
    if not distinct:
        raise ValueError("there is no candidate to choose from")
    if strategy in ("guided", "additive"):
        return Guided(distinct, seed, trees=strategy == "guided")
    if strategy == "evolutionary":
        return Evolutionary(distinct, seed)
    if strategy == "random":
        random.Random(seed).shuffle(distinct)
    else:
        distinct.sort(key=encoding.value)
    return Listed(distinct)


def check(strategy: str) -> str:
    """The name, if there is such a strategy; ValueError listing them."""
    if strategy not in STRATEGIES:
        raise ValueError(f"a strategy is one of {', '.join(STRATEGIES)}, not {strategy!r}")
    return strategy


class History:
    """The steps of a search, with the best so far."""

    def __init__(self):
        self.steps: list[Step] = []

    @property
    def best(self) -> tuple[str | None, float | None]:
        return (self.steps[-1].best_code, self.steps[-1].best_ms) if self.steps else (None, None)

    def add(self, times: Mapping[str, float | None]) -> None:
        for code, ms in times.items():
            best_code, best_ms = self.best
            if ms is not None and (best_ms is None or ms < best_ms):
                best_code, best_ms = code, ms
            self.steps.append(Step(len(self.steps) + 1, code, ms, best_code, best_ms))


def replay(
    pairs: Mapping[str, float],
    strategy: str,
    evaluations: int | None = None,
    seed: int = 0,
    until_ms: float | None = None,
) -> list[Step]:
    """Run a strategy on recorded times instead of a device: the candidates are the codes of ``pairs``.

    evaluations: how many at most, all where None; until_ms: stop once a time is at most that. Two calls with
    one seed give the same steps. ValueError as ``make``, and for no pairs.
    """
    truth = {encoding.canonical(c): ms for c, ms in pairs.items()}
    if evaluations is not None:
        check_int("evaluations", evaluations, 1)
    chooser, history = make(strategy, truth, seed), History()
    limit = len(truth) if evaluations is None else min(evaluations, len(truth))
    while (left := limit - len(history.steps)) > 0 and (some := chooser.ask(min(BATCH, left))):
        times = {c: truth[c] for c in some}
        chooser.tell(times)
        history.add(times)
        if until_ms is not None and history.best[1] <= until_ms:
            break
    return history.steps


def evaluations_to(steps: Sequence[Step], best_ms: float, within: float = 0.03) -> int | None:
    """After how many evaluations the best so far was within that share of ``best_ms``; None where it never
    was."""
    return next(
        (s.number for s in steps if s.best_ms is not None and s.best_ms <= (1 + within) * best_ms), None
    )
