"""How far a result is from its reference: absolute and relative error, cosine, and errors counted in units
in the last place.

The functions take float64 arrays of NumPy or of torch, ``xp`` being the module whose arrays they are: its
functions of these names do the same, so what is measured on a GPU is measured by the lines that the tests
check on NumPy.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fusescope.analysis.accuracy.sums import cosine

FORMATS = {"float64": (53, -1022), "float32": (24, -126), "float16": (11, -14), "bfloat16": (8, -126)}
"""dtype: (bits of the significand with the hidden one, smallest exponent of a normal number); IEEE 754-2019,
bfloat16 as in "BFLOAT16 – Hardware Numerics Definition" (Intel 338302)."""
ULP_EDGES = (0.5, 1, 2, 4, 8, 16, 64, 256, 1024, 65536)
"""Upper ends of the bins of an ULP histogram, each inclusive; above the last is one bin more. Exact results
have a bin of their own in front: the counts are [0], (0, 0.5], (0.5, 1], … , (65536, ∞)."""
SMALL = 1e-3
"""An element smaller than this share of the reference's root mean square is judged relative to that, so that
the relative error of elements near zero, which says nothing about a result, does not drown the rest."""
_TINY = 1e-300  # what an error is relative to where the reference is zero everywhere
_CHUNK = 1 << 22  # elements at a time: bounds the float64 temporaries to some 32 MiB each


@dataclass(frozen=True)
class Errors:
    """Figures over all ``count`` elements that are finite in both; ``unequal`` elements are NaN or infinite
    in only one of them.

    max_rel, mean_rel: relative to max(|reference|, SMALL · rms). relative_l2: ‖out − ref‖₂ / ‖ref‖₂, infinite
    for an error where the reference is zero. ulps: counts by ULP_EDGES, in units in the last place of the
    result's dtype at the reference.
    """

    count: int
    unequal: int
    max_abs: float
    mean_abs: float
    max_rel: float
    mean_rel: float
    relative_l2: float
    cosine: float
    rms: float
    ulps: tuple[int, ...]

    def to_json(self) -> dict[str, Any]:
        """As JSON has it: what is infinite is None."""
        return {k: _finite(v) if isinstance(v, float) else v for k, v in asdict(self).items()} | {
            "ulps": list(self.ulps)
        }


def unit_roundoff(dtype: str) -> float:
    """Largest relative error of rounding to nearest: 2^-24, 2^-11, 2^-8 for float32, float16, bfloat16.
    ValueError else."""
    return 2.0 ** -_format(dtype)[0]


def errors(out, ref, dtype: str, xp=np) -> Errors:
    """``out``, which was computed in ``dtype``, against ``ref``: float64 arrays of one shape. ValueError for
    other shapes."""
    if tuple(out.shape) != tuple(ref.shape):
        raise ValueError(
            "a result is compared with a reference of its shape, "
            f"not {tuple(out.shape)} with {tuple(ref.shape)}"
        )
    out, ref = out.reshape(-1), ref.reshape(-1)
    total = int(ref.shape[0])
    squares = float((ref * ref).sum())
    if not math.isfinite(squares):
        squares = sum(float((r * r)[xp.isfinite(r)].sum()) for r in _chunks(ref))
    rms = math.sqrt(squares / total) if total else 0.0
    sums = dict.fromkeys(("abs", "rel", "difference", "dot", "out", "ref"), 0.0)
    tops, counts, both_finite, unequal = {"abs": 0.0, "rel": 0.0}, [0] * (len(ULP_EDGES) + 2), 0, 0
    for o, r in zip(_chunks(out), _chunks(ref), strict=True):
        difference = xp.abs(o - r)
        if not math.isfinite(float(difference.sum())):
            finite = xp.isfinite(o) & xp.isfinite(r)
            unequal += int((~finite & (o != r) & ~(xp.isnan(o) & xp.isnan(r))).sum())
            o, r = o[finite], r[finite]
            difference = xp.abs(o - r)
        if not len(r):
            continue
        both_finite += len(r)
        size = xp.abs(r)
        relative = difference / xp.clip(size, max(SMALL * rms, _TINY), None)
        relative[difference == 0] = 0.0
        for name, values in (("abs", difference), ("rel", relative)):
            sums[name] += float(values.sum())
            tops[name] = max(tops[name], float(values.max()))
        for name, values in (
            ("difference", difference * difference),
            ("dot", o * r),
            ("out", o * o),
            ("ref", r * r),
        ):
            sums[name] += float(values.sum())
        for i, n in enumerate(_histogram(ulps(difference, r, dtype, xp), xp)):
            counts[i] += n
    norm = math.sqrt(sums["difference"])
    relative_l2 = norm / math.sqrt(sums["ref"]) if sums["ref"] else math.inf if norm else 0.0
    n = max(both_finite, 1)
    return Errors(
        both_finite,
        unequal,
        tops["abs"],
        sums["abs"] / n,
        tops["rel"],
        sums["rel"] / n,
        relative_l2,
        cosine(sums["dot"], sums["out"], sums["ref"]),
        rms,
        tuple(counts),
    )


def ulps(difference, ref, dtype: str, xp=np):
    """|out − ref| in units in the last place of ``dtype`` at ``ref``: the spacing of that dtype's numbers in
    the reference's binade (Goldberg, "What every computer scientist should know about floating-point
    arithmetic", 1991)."""
    bits, least = _format(dtype)
    _, exponent = xp.frexp(ref)  # |ref| is in [2^(e-1), 2^e)
    exponent = xp.clip(xp.where(ref == 0, least, exponent - 1), least, None)
    spacing = xp.exp2(
        (exponent - (bits - 1)) * xp.ones_like(ref)
    )  # by a float64, or torch would go through float32
    return difference / spacing


def ulp_words() -> list[str]:
    """The bins of a histogram in words: "exact", "≤ 0.5", … , "> 65536"."""
    return ["exact", *(f"≤ {edge:g}" for edge in ULP_EDGES), f"> {ULP_EDGES[-1]:g}"]


def _histogram(distances, xp) -> list[int]:
    at_most = [int((distances <= edge).sum()) for edge in (0, *ULP_EDGES)] + [len(distances)]
    return [at_most[0], *(b - a for a, b in itertools.pairwise(at_most))]


def _chunks(values):
    for start in range(0, max(len(values), 1), _CHUNK):
        yield values[start : start + _CHUNK]


def _format(dtype: str) -> tuple[int, int]:
    if dtype not in FORMATS:
        raise ValueError(f"errors are counted in the last places of {', '.join(FORMATS)}, not of {dtype!r}")
    return FORMATS[dtype]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
