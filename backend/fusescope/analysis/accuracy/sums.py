"""Figures of how far a result is from its reference: from sums over chunks, and of several inputs
together."""

from __future__ import annotations

import math

from fusescope.core.records import Accuracy


def cosine(dot: float, square_a: float, square_b: float) -> float:
    """The cosine of two vectors from their dot product and the sums of their squares; 1 of two zero vectors,
    0 of one."""
    norm = math.sqrt(square_a) * math.sqrt(square_b)
    return min(1.0, max(-1.0, dot / norm)) if norm > 0 else float(square_a == square_b)


def worse(a: Accuracy | None, b: Accuracy | None) -> Accuracy | None:
    """The worst of two judgements' figures: what a record shows after several inputs."""
    if a is None or b is None:
        return a or b
    precision = "float32" if "float32" in (a.reference, b.reference) else "float64"
    return Accuracy(max(a.max_abs, b.max_abs), max(a.max_rel, b.max_rel), min(a.cosine, b.cosine), precision)
