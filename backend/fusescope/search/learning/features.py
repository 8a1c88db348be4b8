"""A fusion scheme as numbers: where it is cut, which parts it has, and what kinds of work its parts fuse."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fusescope.search import encoding
from fusescope.search.scheme import templates
from fusescope.search.scheme.layer import OPERATORS

_GEMMS = {o.number for o in OPERATORS if o.unit == "matrix"}
_PARTS = [range(a, b + 1) for a in range(encoding.OPERATORS) for b in range(a, encoding.OPERATORS)]
PART_INDEX = {part: i for i, part in enumerate(_PARTS)}
"""Every run of operators, 120 in all, by its place in ``parts``."""

_COUNTS = (
    "segments",
    "segments of one",
    "longest segment",
    "segments with several GEMMs",
    "segments of a GEMM and others",
    "fused segments without a GEMM",
    "hand-written kernels",
)
NAMES = (
    "hand-written attention",
    *(f"cut {i}|{i + 1}" for i in range(encoding.OPERATORS - 1)),
    *_COUNTS,
    *(f"part {p[0]}" if len(p) == 1 else f"part {p[0]}-{p[-1]}" for p in _PARTS),
)
"""What each column of ``matrix`` is called."""

STRUCTURE = 1 + encoding.OPERATORS - 1
"""The first columns: the attention and the cuts, which determine all the others."""


def matrix(codes: Sequence[str]) -> np.ndarray:
    """float32 (codes, features), columns as NAMES; equivalent codes have equal rows."""
    if not len(codes):
        return np.empty((0, len(NAMES)), np.float32)
    choices = structure(codes)
    attention, cuts = choices[:, :1], choices[:, 1:]
    segments = _parts(cuts)
    alone, fused = segments & ~attention, segments & attention
    counts = alone @ _COUNTED[False] + fused @ _COUNTED[True]
    longest = np.maximum((alone * _LENGTH[False]).max(1), (fused * _LENGTH[True]).max(1))
    counts[:, _COUNTS.index("longest segment")] = np.maximum(longest, 1)
    return np.hstack([choices, counts, parts(choices, segments)]).astype(np.float32)


def structure(codes: Sequence[str]) -> np.ndarray:
    """The first STRUCTURE columns of ``matrix``, as bool (codes, STRUCTURE)."""
    values = np.fromiter(map(encoding.value, codes), np.int64, len(codes))
    bits = (values[:, None] >> np.arange(encoding.BITS)[::-1]) & 1 == 1
    attention, cuts = bits[:, :1], bits[:, 1:-1] != bits[:, 2:]
    first, last = encoding.ATTENTION.start - 1, encoding.ATTENTION.stop - 1
    cuts[
        :, first : last + 1
    ] &= ~attention  # nothing is cut within the hand-written attention, and it is at both of its ends
    cuts[:, [first, last]] |= attention
    return np.hstack([attention, cuts])


def parts(choices: np.ndarray, segments: np.ndarray | None = None) -> np.ndarray:
    """The last columns of ``matrix``, as bool (codes, 120), of what ``structure`` gives; ``segments``: what
    _parts gives for its cuts, where that is known."""
    found = _parts(choices[:, 1:]) if segments is None else segments.copy()
    # the kernel is no torch.compile of 2-7: bit 0 alone represents it
    found[:, PART_INDEX[encoding.ATTENTION]] &= ~choices[:, 0]
    return found


def _parts(cuts: np.ndarray) -> np.ndarray:
    """Which runs of operators, in the order of PART_INDEX, lie between two cuts: bool (codes, 120) of bool
    (codes, 14)."""
    ends = np.ones((len(cuts), 1), bool)
    walls = np.hstack([ends, cuts, ends])  # before operator 0, after operators 0-13, after operator 14
    before = np.cumsum(walls, 1)
    first, last = (np.array([p[i] for p in _PARTS]) for i in (0, -1))
    return walls[:, first] & walls[:, last + 1] & (before[:, last] == before[:, first])


def _counted(attention: bool) -> np.ndarray:
    """What each part adds to each count: float32 (120, counts); the longest segment is no sum."""
    found = np.zeros((len(_PARTS), len(_COUNTS)), np.float32)
    for row, part in zip(found, _PARTS):
        written, gemms = templates.match(part, attention) is not None, len(_GEMMS & set(part))
        fused = len(part) > 1 and not written
        row[:] = (
            1,
            len(part) == 1,
            0,
            fused and gemms > 1,
            fused and gemms == 1,
            fused and gemms == 0,
            written,
        )
    return found


_COUNTED = {attention: _counted(attention) for attention in (False, True)}
_LENGTH = {
    attention: np.array([0 if templates.match(p, attention) else len(p) for p in _PARTS], np.int8)
    for attention in (False, True)
}
