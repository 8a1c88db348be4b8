"""Fitting the cost model to measured records of one GPU, and how good such a fit is on records left out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from fusescope.core import same_code
from fusescope.ops.attention.dispatch.cost_model import Fit, kind_of
from fusescope.ops.attention.dispatch.counts import Counts, counts_of_case, features_of

_LEAST = 6  # records below which a kernel is not fitted; of one with few prices, twice as many as these


def fit(
    device: str, sms: int, measured: Sequence[tuple[str, str, Counts, float]], runs=(), sources=None
) -> Fit:
    """A fit to (impl, dtype, work, microseconds) of one device. ValueError where no kernel has enough
    records."""
    prices: dict[str, dict[str, list[float]]] = {}
    used = 0
    cases = [(kind_of(dtype, done, sms), impl, done, us) for impl, dtype, done, us in measured]
    for kind in sorted({k for k, _, _, _ in cases}):
        for impl in sorted({i for k, i, _, _ in cases if k == kind}):
            mine = [(done, us) for k, i, done, us in cases if i == impl and k == kind]
            if len(mine) < min(_LEAST, 2 * len(features_of(impl))):
                continue
            used += len(mine)
            times = np.array([us for _, us in mine])
            rows = np.array([done.features(impl, sms) for done, _ in mine]) / times[:, None]
            prices.setdefault(kind, {})[impl] = [
                float(f"{p:.5g}") for p in non_negative(rows, np.ones(len(mine)))
            ]
    if not prices:
        raise ValueError(
            f"a kernel is fitted to at least {_LEAST} records; there are {len(measured)} of all "
            f"kernels on {device}"
        )
    made = Fit(device, sms, prices, tuple(runs), dict(sources or {}), used)
    return replace(made, corrections=_corrections(made, measured))


def keeping(made: Fit, before: Fit) -> Fit:
    """made, with the prices that an earlier fit of the same GPU has of kernels which no run of made
    measured on cases of a kind, and its corrections of kinds that made has nothing of."""
    prices = {kind: dict(found) for kind, found in made.prices.items()}
    for kind, found in before.prices.items():
        kept = {i: p for i, p in found.items() if len(p) == len(features_of(i))}
        prices[kind] = kept | prices.get(kind, {})
    corrections = {k: v for k, v in before.corrections.items() if k not in made.prices}
    runs = (*made.runs, *(run for run in before.runs if run not in made.runs))
    sources = dict(before.sources) | dict(made.sources)
    corrections |= made.corrections
    return replace(made, prices=prices, runs=runs, sources=sources, corrections=corrections)


def _corrections(made: Fit, measured: Sequence[tuple[str, str, Counts, float]]) -> dict[str, dict[str, str]]:
    """Of the measured cases, those where the kernel that the model chooses is not the fastest."""
    found: dict[str, dict[str, str]] = {}
    for (dtype, done), times in _by_work(measured).items():
        best = min(times, key=times.get)
        if made.choose(dtype, done, times) not in (None, best):
            found.setdefault(kind_of(dtype, done, made.sms), {})[done.key] = best
    return found


def _by_work(
    measured: Iterable[tuple[str, str, Counts, float]],
) -> dict[tuple[str, Counts], dict[str, float]]:
    """{(dtype, work): {impl: microseconds}}, the last record of an implementation."""
    cases: dict[tuple[str, Counts], dict[str, float]] = {}
    for impl, dtype, done, us in measured:
        cases.setdefault((dtype, done), {})[impl] = us
    return cases


def non_negative(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """x >= 0 with the least |a x - b|, by the active-set method of Lawson and Hanson (Solving Least Squares
    Problems, 1974, ch. 23)."""
    scale = np.linalg.norm(a, axis=0)
    a = a / np.where(scale == 0, 1, scale)
    x, free = np.zeros(a.shape[1]), np.zeros(a.shape[1], bool)
    for _ in range(10 * a.shape[1]):
        gradient = a.T @ (b - a @ x)
        gradient[free] = -np.inf
        if gradient.max() <= 1e-10:
            break
        free[gradient.argmax()] = True
        while True:
            trial = np.zeros_like(x)
            trial[free] = np.linalg.lstsq(a[:, free], b, rcond=None)[0]
            low = free & (trial <= 0)
            if not low.any():
                break
            step = np.min(x[low] / (x[low] - trial[low] + 1e-300))  # as far as no price turns negative
            x = x + step * (trial - x)
            free &= x > 1e-12
            x[~free] = 0
            if not free.any():
                trial = x
                break
        x = trial
    return x / np.where(scale == 0, 1, scale)


def measured(records: Iterable, sms: int) -> list[tuple[str, str, Counts, float]]:
    """What a fit needs of records of attention on a GPU of so many multiprocessors, oldest first: our kernels
    that were right, by their graph time, without a bias.

    Of a kernel and case only the machine code that was measured last counts; what was measured before an edit
    holds where nothing was since. Of the kernel in parts only cases that the choice looks at. Records under
    the power cap count, too: large works always run there, and a case's kernels are timed in turns.
    """
    found, newest = [], {}
    for r in records:
        timing = r.time_ms.graph if r.op == "attention" and r.status == "ok" and r.time_ms else None
        if timing is not None and r.impl.startswith("v") and r.case["bias"] == "none":
            found.append((r, timing.median * 1e3))
            newest[r.impl, r.case_key] = r.source_hash
    rows = [
        (r.impl, r.dtype, counts_of_case(r.case, sms), us)
        for r, us in found
        if r.source_hash == (last := newest[r.impl, r.case_key])
        or same_code.same(r.op, r.impl, r.source_hash, last)
    ]
    return [row for row in rows if row[2].counted(row[0])]


def regret(made: Fit, held_out: Sequence[tuple[str, str, Counts, float]]) -> list[float]:
    """For each case of what was held out: time of the kernel that the fit takes over that of the best
    measured one, 1.0 = the best. Left out are cases of which the fit says nothing, because no kernel had
    enough records: there the rule chooses."""
    found = []
    for (dtype, done), times in _by_work(held_out).items():
        if chosen := made.choose(dtype, done, times):
            found.append(times[chosen] / min(times.values()))
    return found


def cross_validated(
    device: str, sms: int, rows: Sequence[tuple[str, str, Counts, float]], parts: int = 10
) -> list[float]:
    """``regret`` of every case by a fit to the other parts only; cases are dealt round-robin in the order
    given."""
    order = {key: n for n, key in enumerate(dict.fromkeys((dtype, done) for _, dtype, done, _ in rows))}
    found = []
    for part in range(min(parts, len(order))):
        test = [row for row in rows if order[row[1], row[2]] % parts == part]
        rest = [row for row in rows if order[row[1], row[2]] % parts != part]
        found += regret(fit(device, sms, rest), test)
    return found
