"""A scheme's time predicted from known pairs: XGBoost over features of the scheme, and costs of segments.

Both predict the logarithm of the time; the share of each is the best in cross-validation (0: additive
alone, 1: XGBoost alone). The interval is that of the cross-validated errors, so it holds 95 in 100 codes like
those learned from, and is wider where segment costs are less certain than for the held-out codes. Saved as
JSON, XGBoost's trees within.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fusescope.core.schema import check_int
from fusescope.search import encoding
from fusescope.search.learning import boosted, pairs
from fusescope.search.learning.additive import Additive

FEWEST = 20  # pairs: below, four fifths of them say nothing about the rest
FORMAT, VERSION = "fusescope surrogate", 2
_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
_MOST_BYTES = 64 << 20


@dataclass(frozen=True)
class Prediction:
    """ms with its 95 % interval; performance: 1 (High) where ms is at most the threshold, else 0 (Low);
    probability: that the true time is at most the threshold."""

    code: str
    ms: float
    low: float
    high: float
    performance: int
    probability: float


class CostModel:
    """What was learned from ``known`` pairs. Made by ``train`` and ``load``."""

    def __init__(self, known: Mapping[str, float], trees: boosted.Boosted, facts: Mapping[str, Any]):
        self.known, self.trees = dict(known), trees
        self.threshold_ms = check_threshold(facts["threshold_ms"])
        self.share, self.spread, self.quantile = (float(facts[n]) for n in ("share", "spread", "quantile"))
        self.context, self.validation, self.seed = (
            dict(facts["context"]),
            dict(facts["validation"]),
            int(facts["seed"]),
        )
        own, noise = (float(v) for v in facts["prior"])
        if not (own > 0 and noise > 0):
            raise ValueError(f"the deviations of the prior are above 0, not {own:g} and {noise:g}")
        self._additive = Additive(self.known, (own, noise))

    @property
    def pairs(self) -> int:
        """How many pairs it was trained on."""
        return len(self.known)

    @property
    def importance(self) -> list[dict]:
        """[{"feature", "share"}] of the gain over XGBoost's trees, the largest first; shares add up to 1."""
        return self.trees.importance()

    def predict(self, codes: Sequence[str | int], threshold_ms: float | None = None) -> list[Prediction]:
        """A Prediction of each code, in that order; ValueError with the rule for what is no code."""
        canonical = [encoding.canonical(c) for c in codes]
        if not canonical:
            return []
        limit = self.threshold_ms if threshold_ms is None else check_threshold(threshold_ms)
        mean, deviation = self.log_ms(canonical)
        found = []
        for code, m, d in zip(canonical, mean, deviation):
            half = self.quantile * max(1.0, d / self.spread) if self.spread else self.quantile
            sigma = max(half / 1.96, 1e-9)
            probability = 0.5 * (1 + math.erf((math.log(limit) - m) / sigma / math.sqrt(2)))
            ms, low, high = (math.exp(v) for v in (m, m - half, m + half))
            found.append(Prediction(code, ms, low, high, int(ms <= limit), probability))
        return found

    def log_ms(self, codes: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """(logarithm of ms, its deviation by segment costs) of canonical codes."""
        mean, deviation = _sums(self._additive, codes)
        return (1 - self.share) * mean + self.share * self.trees.log_ms(codes), deviation

    def to_json(self) -> dict:
        facts = {
            n: getattr(self, n)
            for n in ("threshold_ms", "share", "spread", "quantile", "context", "validation", "seed")
        }
        facts |= {"prior": self._additive.prior, "trees": self.trees.to_json()}
        return {"format": FORMAT, "version": VERSION, "pairs": self.known, **facts}

    def save(self, path: str | Path) -> None:
        """Write it as JSON."""
        Path(path).write_text(json.dumps(self.to_json(), allow_nan=False))


def train(
    known: Mapping[str, float],
    threshold_ms: float | None = None,
    seed: int = 0,
    folds: int = 5,
    context: Mapping | None = None,
    say: Callable[[int, int], None] = lambda done, total: None,
) -> CostModel:
    """Learn from {code: ms} of one setting; ``context``: what describes it (Setting.spec()), kept with the
    model; ``say(done, total)`` counts the trainings.

    threshold_ms: between High and Low performance; the median of the times where None. ValueError under 20
    distinct schemes or for times that are not above 0; ModuleNotFoundError without xgboost.
    """
    merged: dict[str, float] = {}
    for code, ms in known.items():
        if not (isinstance(ms, int | float) and math.isfinite(ms) and ms > 0):
            raise ValueError(f"the time of a code is a number of milliseconds above 0, not {ms!r} ({code})")
        merged[encoding.canonical(code)] = float(ms)
    if len(merged) < FEWEST:
        raise ValueError(
            f"a cost model learns from at least {FEWEST} distinct schemes, not from {len(merged)}"
        )
    check_int("folds", folds, 2, 20)
    codes, y = list(merged), np.log(list(merged.values()))
    fold = np.random.default_rng(seed).permutation(len(codes)) % folds
    sums, trees, spreads = np.empty((3, len(codes)))
    for k in range(folds):
        test, rest = np.flatnonzero(fold == k), np.flatnonzero(fold != k)
        learned, some = {codes[i]: merged[codes[i]] for i in rest}, [codes[i] for i in test]
        sums[test], spreads[test] = _sums(Additive(learned), some)
        trees[test] = boosted.train(learned, seed).log_ms(some)
        say(k + 1, folds + 1)
    share = min(_SHARES, key=lambda s: float(np.mean(((1 - s) * sums + s * trees - y) ** 2)))
    predicted = (1 - share) * sums + share * trees
    facts = {
        "threshold_ms": float(np.exp(np.median(y)))
        if threshold_ms is None
        else check_threshold(threshold_ms),
        "share": share,
        "spread": float(np.quantile(spreads, 0.9)),
        "quantile": float(np.quantile(np.abs(predicted - y), 0.95)),
        "context": dict(context or {}),
        "validation": _validation(codes, y, predicted, fold, folds),
        "seed": seed,
        "prior": Additive(merged).prior,
    }
    return CostModel(merged, boosted.train(merged, seed), facts)


def load(path: str | Path) -> CostModel:
    """A saved cost model; ValueError where the file is none or of another version. Its trees are in XGBoost's
    own form, which XGBoost trusts: of a stranger's file take the ``saved_pairs`` and train."""
    path = Path(path)
    if path.stat().st_size > _MOST_BYTES:
        raise ValueError(f"{path} is larger than {_MOST_BYTES >> 20} MiB and no cost model of FuseScope")
    with _readable(str(path)):
        data = _saved(path.read_text())
        return CostModel(_pairs_in(data), boosted.from_json(data["trees"]), data)


def saved_pairs(text: str, name: str) -> tuple[dict[str, float], dict[str, Any]]:
    """(pairs, context) of a saved cost model's text; nothing but numbers and words is read. ValueError as of
    ``load``."""
    with _readable(name):
        data = _saved(text)
        return _pairs_in(data), {
            str(k): v for k, v in data["context"].items() if isinstance(v, str | int | float | None)
        }


def _saved(text: str) -> dict:
    data = json.loads(text)
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ValueError("its format is another one")
    if data["version"] != VERSION:
        age = "a newer" if data["version"] > VERSION else "an older"
        raise ValueError(
            f"it was written by {age} version (form {data['version']}, this one reads {VERSION})"
        )
    return data


def _pairs_in(data: Mapping) -> dict[str, float]:
    return {encoding.canonical(c): float(ms) for c, ms in data["pairs"].items()}


@contextlib.contextmanager
def _readable(name: str):
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        raise ValueError(
            f"{name} is no cost model that can be read: {type(e).__name__}: {' '.join(str(e).split())[:200]}"
        ) from None


def predict(code: str | int, data: str | Path, threshold_ms: float | None = None) -> dict[str, Any]:
    """What the verb ``predict`` prints: the prediction for a code from a file, either pairs
    ``bits<TAB>milliseconds`` (a cost model is trained on them) or a saved cost model. "measured_ms" is the
    pair's own time where the file holds that scheme."""
    with pairs.plain(data).open("rb") as f:
        begin = f.read(1)
    model = load(data) if begin == b"{" else train(pairs.read(data))
    found = model.predict([code], threshold_ms)[0]
    limit = model.threshold_ms if threshold_ms is None else threshold_ms
    summary = {k: v for k, v in model.validation.items() if k != "points"}
    return asdict(found) | {
        "value": encoding.value(found.code),
        "class": "High" if found.performance else "Low",
        "threshold_ms": limit,
        "measured_ms": model.known.get(found.code),
        "pairs": model.pairs,
        "validation": summary,
    }


def check_threshold(ms: float) -> float:
    if isinstance(ms, bool) or not isinstance(ms, int | float) or not (math.isfinite(ms) and ms > 0):
        raise ValueError(
            f"the threshold between High and Low performance is a number of milliseconds above 0, not {ms!r}"
        )
    return float(ms)


def rank_correlation(a, b) -> float:
    """Spearman's: the correlation of the ranks, ties at their mean rank; 0 where one side is constant."""
    ranks = [_ranks(np.asarray(v, float)) for v in (a, b)]
    deviations = [r - r.mean() for r in ranks]
    norm = math.sqrt(float((deviations[0] ** 2).sum() * (deviations[1] ** 2).sum()))
    return float(deviations[0] @ deviations[1]) / norm if norm else 0.0


def _ranks(x: np.ndarray) -> np.ndarray:
    _, place, count = np.unique(x, return_inverse=True, return_counts=True)
    return (np.cumsum(count) - (count - 1) / 2)[place]


def _sums(additive: Additive, codes: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """(logarithm of ms, its deviation) by segment costs; a sum is kept above a tenth of the mean time."""
    ms, deviation = additive.predict(codes)
    ms = np.maximum(ms, 0.1 * additive.mean)
    return np.log(ms), deviation / ms


def _validation(codes, y, predicted, fold, folds) -> dict:
    """Errors of predictions for codes held out; coverage: how many of them lie in the interval that the other
    folds give."""
    error = np.abs(predicted - y)
    inside = [error[fold == k] <= np.quantile(error[fold != k], 0.95) for k in range(folds)]
    ms, measured = np.exp(predicted), np.exp(y)
    return {
        "folds": folds,
        "error_percent": 100 * float(np.mean(np.abs(ms / measured - 1))),
        "rmse_ms": float(np.sqrt(np.mean((ms - measured) ** 2))),
        "rank_correlation": rank_correlation(ms, measured),
        "coverage": float(np.concatenate(inside).mean()),
        "points": [
            {"code": c, "measured_ms": float(m), "predicted_ms": float(p)}
            for c, m, p in zip(codes, measured, ms)
        ],
    }
