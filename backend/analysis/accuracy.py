"""How far a result lies from its reference: figures over arrays, in float64, without torch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

FORMATS = {"float32": (23, -126), "float16": (10, -14), "bfloat16": (7, -126)}
"""By dtype: bits of the stored significand, exponent of the smallest normal number."""

ULP_EDGES = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 64.0, 256.0, 1024.0, np.inf)
"""Edges of the ULP histogram: 0.5 is a correctly rounded result."""


@dataclass(frozen=True)
class Errors:
    """Largest and mean errors over the elements; relative ones where the reference is not 0; cosine of the two as vectors."""

    max_abs: float
    mean_abs: float
    max_rel: float
    mean_rel: float
    cosine: float


def errors(out, reference) -> Errors:
    """Errors of ``out`` against ``reference``, arrays of one shape; both are taken as float64.

    Elements that are equal, infinities included, have no error; a NaN or infinity that the other does not have counts as an
    infinite one. The cosine of two zero vectors is 1, of one zero vector 0. ValueError where the shapes differ.
    """
    out, reference = _pair(out, reference)
    if out.size == 0:
        return Errors(0.0, 0.0, 0.0, 0.0, 1.0)
    absolute = _distance(out, reference)
    size = np.abs(reference)
    at = (size > 0) & np.isfinite(size)
    relative = absolute[at] / size[at]
    return Errors(
        float(absolute.max()),
        float(absolute.mean()),
        float(relative.max()) if relative.size else 0.0,
        float(relative.mean()) if relative.size else 0.0,
        cosine(out, reference),
    )


def cosine(a, b) -> float:
    """Cosine of the angle between two arrays as vectors; NaN where either holds a NaN or infinity."""
    a, b = (np.asarray(x, np.float64).ravel() for x in (a, b))
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return float("nan")
    largest = [max(np.abs(x).max(initial=0.0), 0.0) for x in (a, b)]
    if 0.0 in largest:
        return 1.0 if largest == [0.0, 0.0] else 0.0
    a, b = a / largest[0], b / largest[1]  # squares of very large or small numbers would leave the range
    return float(np.clip(np.dot(a, b) / np.sqrt(np.dot(a, a) * np.dot(b, b)), -1.0, 1.0))


def ulps(out, reference, dtype: str) -> np.ndarray:
    """Distance of each element in units in the last place of ``dtype`` at the reference's size; float64, the same shape.

    One ulp at x is 2^(floor(log2 |x|) − p) for p stored bits; below the smallest normal number it is that number's own (Goldberg
    1991). ValueError for a dtype other than float32, float16 and bfloat16.
    """
    if dtype not in FORMATS:
        raise ValueError(f"ulps are known for {', '.join(FORMATS)}, not {dtype!r}")
    bits, smallest = FORMATS[dtype]
    out, reference = _pair(out, reference)
    _, exponent = np.frexp(np.where(np.isfinite(reference), reference, 1.0))
    exponent = np.where(reference == 0, smallest, exponent)  # frexp calls the exponent of 0 itself 0
    return _distance(out, reference) / np.ldexp(1.0, np.maximum(exponent - 1, smallest) - bits)


def ulp_histogram(distances) -> np.ndarray:
    """How many distances fall between neighbours of ULP_EDGES; an edge belongs to the bin below it, and 0 to the first."""
    edges = np.asarray(ULP_EDGES)
    index = np.maximum(np.searchsorted(edges, np.ravel(distances), side="left"), 1) - 1
    return np.bincount(np.minimum(index, len(edges) - 2), minlength=len(edges) - 1)


def _pair(out, reference) -> tuple[np.ndarray, np.ndarray]:
    out, reference = np.asarray(out, np.float64), np.asarray(reference, np.float64)
    if out.shape != reference.shape:
        raise ValueError(f"the result and its reference have one shape, not {out.shape} and {reference.shape}")
    return out, reference


def _distance(out: np.ndarray, reference: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        distance = np.abs(out - reference)
    same = (out == reference) | (np.isnan(out) & np.isnan(reference))
    return np.where(same, 0.0, np.where(np.isnan(distance), np.inf, distance))
