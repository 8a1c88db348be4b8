"""Which boundaries matter: what a cut costs or saves on average, what flipping it does to the best scheme,
what each segment costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fusescope.search import encoding
from fusescope.search.learning import evolve, features
from fusescope.search.learning.additive import Additive
from fusescope.search.scheme.layer import OPERATORS


@dataclass(frozen=True)
class Boundary:
    """The place after operator ``after`` (None: the choice of the hand-written attention). effect_ms: how
    much longer schemes with a cut there (with the attention) take than those without, all else equal, with
    its 95 % interval; None where the pairs do not vary there. flipped_*: the best scheme with this one choice
    turned round; measured: whether its time is one of the pairs, else it is predicted; None where the choice
    cannot be turned alone, or nothing is known of the other way."""

    after: int | None
    names: tuple[str, ...]
    effect_ms: float | None
    low: float | None
    high: float | None
    flipped_code: str | None = None
    flipped_ms: float | None = None
    measured: bool = False

    def __post_init__(self):
        if len(self.names) != 2:
            raise ValueError(f"a boundary has two names, not {len(self.names)}")


@dataclass(frozen=True)
class SegmentCost:
    """A segment's cost as fitted to whole schemes, and how many of them have it. attention: the hand-written
    one."""

    operators: tuple[int, ...]
    ms: float
    count: int
    attention: bool = False

    def __post_init__(self):
        if not self.operators:
            raise ValueError("a segment has an operator at least")


def boundaries(pairs: Mapping[str, float], best: str | None = None) -> list[Boundary]:
    """The attention first, then the 14 places in order. ``best``: the scheme whose neighbours are looked at,
    the fastest of the pairs where None. ValueError for fewer than 3 pairs."""
    truth = {encoding.canonical(c): ms for c, ms in pairs.items()}
    if len(truth) < 3:
        raise ValueError(f"boundaries are explained from at least 3 schemes, not from {len(truth)}")
    best = min(truth, key=truth.get) if best is None else encoding.canonical(best)
    sums = Additive(truth)
    effects = _effects(truth)
    found = []
    for place in (None, *range(encoding.OPERATORS - 1)):
        flipped = _flip(best, place)
        names = (
            ("without", "hand-written attention")
            if place is None
            else (OPERATORS[place].name, OPERATORS[place + 1].name)
        )
        effect = effects.get(-1 if place is None else place, (None, None, None))
        ms = truth.get(flipped)
        if (
            ms is None and flipped and effect[0] is not None
        ):  # nothing is known of a choice that no pair varies
            ms = float(sums.predict([flipped])[0][0])
        found.append(Boundary(place, names, *effect, flipped, ms, flipped in truth))
    return found


def segments(pairs: Mapping[str, float]) -> list[SegmentCost]:
    """Every segment that some scheme of the pairs has, by its first operators: what it adds to a scheme.
    Costs are shared out so that they add up to the schemes' times; what all schemes have in common is spread
    over the operators evenly."""
    truth = {encoding.canonical(c): ms for c, ms in pairs.items()}
    if not truth:
        return []
    counts: dict[tuple[range, bool], int] = {}
    for code in truth:
        attention = encoding.attention(code)
        for part in encoding.parts(code):
            at = part, attention and part == encoding.ATTENTION
            counts[at] = counts.get(at, 0) + 1
    sums = Additive(truth)
    keys = sorted(counts, key=lambda k: (k[0].start, k[0].stop, k[1]))
    index = {k: i for i, k in enumerate(keys)}
    rows = np.zeros((len(truth), len(keys)))
    for r, code in enumerate(truth):
        attention = encoding.attention(code)
        for part in encoding.parts(code):
            rows[r, index[part, attention and part == encoding.ATTENTION]] = 1
    even = np.array([len(k[0]) for k in keys]) * sums.mean / encoding.OPERATORS
    fitted = sums.predict(list(truth))[0]
    rest, *_ = np.linalg.lstsq(rows, fitted - rows @ even, rcond=1e-6)
    return [SegmentCost(tuple(k[0]), float(e + d), counts[k], k[1]) for k, e, d in zip(keys, even, rest)]


def _effects(truth: Mapping[str, float]) -> dict[int, tuple[float, float, float]]:
    """Main effects by least squares over the attention (-1) and the cuts, with intervals from the
    residuals."""
    x = features.structure(list(truth)).astype(float)
    y = np.array(list(truth.values()))
    varies = np.flatnonzero(x.std(0) > 0)
    design = np.hstack([np.ones((len(x), 1)), x[:, varies]])
    weights, *_ = np.linalg.lstsq(design, y, rcond=None)
    freedom = max(1, len(y) - design.shape[1])
    variance = float(((y - design @ weights) ** 2).sum()) / freedom
    deviation = np.sqrt(np.maximum(variance * np.diag(np.linalg.pinv(design.T @ design)), 0.0))
    found = {}
    for i, column in enumerate(varies, 1):
        half = 1.96 * deviation[i]
        found[int(column) - 1] = (float(weights[i]), float(weights[i] - half), float(weights[i] + half))
    return found


def _flip(code: str, place: int | None) -> str | None:
    """The scheme with one choice turned round; None inside and at the ends of the hand-written attention."""
    attention, cuts = encoding.attention(code), set(encoding.boundaries(code))
    if place is None:
        return evolve.scheme(not attention, cuts)
    if attention and encoding.ATTENTION.start - 1 <= place <= encoding.ATTENTION.stop - 1:
        return None
    return encoding.encode(attention, cuts ^ {place})
