"""Latencies with every kind of noise that a real machine showed, on a clock of their own: samplers for
measure.compare.rounds."""

import math
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np

MOST = 700  # turns that are drawn at once


class Clock:
    """time.monotonic for compare.py; it moves only while something is sampled."""

    def __init__(self):
        self.now = 0.0
        self.module = SimpleNamespace(monotonic=lambda: self.now)


class Sampled:
    """A sampler of ``median`` ms a call; ``levels``: what each turn adds on the logarithmic scale, ``noise``:
    what each sample does. ``tick_ms``: what its timer resolves."""

    mode, cost_ms = "eager", 1.3

    def __init__(self, clock: Clock, levels: np.ndarray, rng, median=1.0, noise=0.002, tick_ms=0.0):
        self.clock, self.median, self.tick_ms, self.turn = clock, median, tick_ms, 0
        self.factors = np.exp(levels[:, None] + noise * rng.standard_normal((len(levels), 3))).tolist()

    def take(self, count, look=None):
        taken = [self.median * f for f in self.factors[self.turn % MOST][:count]]
        if self.tick_ms:
            taken = [max(1, round(ms / self.tick_ms)) * self.tick_ms for ms in taken]
        self.turn += 1
        self.clock.now += (sum(taken) + self.median) / 1e3
        return taken


def autoregressive(rng, correlation: float, spread: float) -> np.ndarray:
    shocks = rng.standard_normal(MOST) * spread * math.sqrt(1 - correlation**2)
    x = [spread * rng.standard_normal()]
    for shock in shocks[1:]:
        x.append(correlation * x[-1] + shock)
    return np.array(x)


def two_speeds(rng, stay: float, gap: float = 0.05) -> np.ndarray:
    """A kernel that runs at one of two speeds and keeps it from one turn to the next with probability
    ``stay``."""
    return gap * ((np.cumsum(rng.random(MOST) > stay) + rng.integers(2)) % 2)


def bursts(rng) -> np.ndarray:
    """Load that comes for some ten turns and hits this implementation alone: it adds a third."""
    on, found = False, np.zeros(MOST)
    for i in range(MOST):
        on = rng.random() < (0.9 if on else 0.03)
        found[i] = on * rng.uniform(0.1, 0.4)
    return found


def independent(rng, spread: float) -> np.ndarray:
    return spread * rng.standard_normal(MOST)


def step(rng) -> np.ndarray:
    """Once within the first 100 turns this implementation becomes 5 % slower, or faster, for good."""
    return np.where(np.arange(MOST) < rng.integers(20, 100), 0.0, rng.choice([-0.05, 0.05]))


def drift(rng) -> np.ndarray:
    """A random walk that both implementations share."""
    return np.cumsum(0.01 * rng.standard_normal(MOST)) + np.linspace(0, 0.5, MOST)


NOISES: dict[str, Callable] = {
    "independent 1 %": lambda rng: independent(rng, 0.01),
    "independent 5 %": lambda rng: independent(rng, 0.05),
    "heavy tails": lambda rng: 0.01 * rng.standard_t(1.5, MOST),
    "AR 0.5": lambda rng: autoregressive(rng, 0.5, 0.02),
    "AR 0.9": lambda rng: autoregressive(rng, 0.9, 0.02),
    "AR 0.95": lambda rng: autoregressive(rng, 0.95, 0.02),
    "AR 0.95 of 5 %": lambda rng: autoregressive(rng, 0.95, 0.05),
    "AR 0.95 under noise": lambda rng: autoregressive(rng, 0.95, 0.01) + independent(rng, 0.02),
    "two speeds, 5 turns": lambda rng: two_speeds(rng, 0.8),
    "two speeds, 10 turns": lambda rng: two_speeds(rng, 0.9),
    "two speeds, 20 turns": lambda rng: two_speeds(rng, 0.95),
    "bursts": bursts,
    "two humps": lambda rng: 0.06 * rng.integers(2, size=MOST) + independent(rng, 0.003),
    "own step": step,
}
"""Of one implementation alone, drawn anew for each: log-level by turn."""

SHARED: dict[str, Callable] = {
    "drift": drift,
    "step for both": step,
    "two speeds for both": lambda rng: two_speeds(rng, 0.95),
}
"""Of the machine, the same for both."""
