"""Schemes as sums of segment costs: kernels run one after the other, so a scheme's time is nearly the sum of
its segments'.

Bayesian linear regression (Bishop, Pattern Recognition and Machine Learning, 2006, section 3.3). A segment's
cost is that of its operators, less a saving for each place that is not cut, plus something of its own; the
last is held small by its prior, so that a segment that was never seen is estimated from the places where it
is not cut.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fusescope.search.learning import features

_OWN = (0.03, 0.1, 0.3, 1.0)  # prior deviation of a segment's own part, of the deviation of all times
_NOISE = (0.01, 0.03, 0.1, 0.3)  # deviation of a measurement, likewise


class Additive:
    """Fitted to pairs {code: ms}; the prior's deviations by the evidence, unless ``prior`` (own, noise) gives
    them.

    ``columns`` of codes may be made once and given to the methods in place of codes.
    """

    def __init__(self, pairs: Mapping[str, float], prior: tuple[float, float] | None = None):
        y = np.array(list(pairs.values()), float)
        if not y.size:
            raise ValueError("segment costs are fitted to at least one pair")
        self.mean, self.scale = float(y.mean()), float(y.std()) or 0.01 * float(y.mean())
        x, t = columns(list(pairs)), (y - self.mean) / self.scale
        choices = {own: _NOISE for own in _OWN} if prior is None else {prior[0]: (prior[1],)}
        products = x.T @ x if len(x) >= x.shape[1] else None
        spectra = {own: _Spectrum(x, t, own, products) for own in choices}
        self.prior = max(
            ((own, noise) for own in choices for noise in choices[own]),
            key=lambda p: spectra[p[0]].evidence(p[1]),
        )
        self.weights, self.root = spectra[self.prior[0]].posterior(self.prior[1])

    def predict(self, codes: Sequence[str] | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(ms, its deviation without the measurement's own noise) of each code."""
        x = codes if isinstance(codes, np.ndarray) else columns(codes)
        return self.mean + self.scale * (x @ self.weights), self.scale * np.sqrt(
            ((x @ self.root) ** 2).sum(1)
        )

    def draw(self, codes: Sequence[str] | np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """ms of each code under costs drawn from what is believed of them (Thompson sampling)."""
        x = codes if isinstance(codes, np.ndarray) else columns(codes)
        weights = self.weights + self.root @ rng.standard_normal(self.root.shape[1])
        return self.mean + self.scale * (x @ weights)


def columns(codes: Sequence[str]) -> np.ndarray:
    """One, the attention, the cuts, the parts: a row per code."""
    choices = features.structure(codes)
    return np.hstack([np.ones((len(codes), 1)), choices, features.parts(choices)])


class _Spectrum:
    """t = x w + noise under one prior: w = deviation * v with v standard normal, seen along the eigenvectors
    of z = x * deviation."""

    def __init__(self, x: np.ndarray, t: np.ndarray, own: float, products: np.ndarray | None):
        self.deviation = np.full(x.shape[1], own)
        self.deviation[: 1 + features.STRUCTURE] = 1.0
        if (
            products is None
        ):  # fewer rows than columns: z zᵀ is the smaller product, and has all that is not zero
            z = x * self.deviation
            values, left = np.linalg.eigh(z @ z.T)
        else:
            values, left = np.linalg.eigh(products * self.deviation * self.deviation[:, None])
        kept = values > 1e-9 * values[-1]
        self.values, self.vectors = values[kept], left[:, kept]
        if products is None:
            self.vectors = z.T @ (self.vectors / np.sqrt(self.values))
        self.turned, self.square, self.count = (
            self.vectors.T @ (self.deviation * (t @ x)),
            float(t @ t),
            len(t),
        )

    def evidence(self, noise: float) -> float:
        """Logarithm of the probability of t, for a noise of this deviation."""
        precision = 1.0 + self.values / noise**2
        misfit = (self.square - float((self.turned**2 / (precision * noise**2)).sum())) / noise**2
        return -0.5 * (misfit + float(np.log(precision).sum()) + self.count * np.log(2 * np.pi * noise**2))

    def posterior(self, noise: float) -> tuple[np.ndarray, np.ndarray]:
        """(mean of w, root of its covariance)."""
        precision = 1.0 + self.values / noise**2
        weights = self.deviation * (self.vectors @ (self.turned / precision)) / noise**2
        shrunk = self.vectors * (1.0 - 1.0 / np.sqrt(precision))
        return weights, self.deviation[:, None] * (np.eye(len(weights)) - shrunk @ self.vectors.T)
