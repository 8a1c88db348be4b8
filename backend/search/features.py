"""A fusion scheme as numbers: where it is cut, which parts it has, and what kinds of work its parts join."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from backend.search import encoding, templates
from backend.search.layer import OPERATORS

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
    return np.stack([_row(encoding.canonical(c)) for c in codes]) if len(codes) else np.empty((0, len(NAMES)), np.float32)


@lru_cache(maxsize=1 << 16)
def _row(code: str) -> np.ndarray:
    attention, parts = encoding.attention(code), encoding.parts(code)
    row = np.zeros(len(NAMES), np.float32)
    row[0] = attention
    for cut in encoding.boundaries(code):
        row[1 + cut] = 1
    joined = [p for p in parts if len(p) > 1 and not templates.match(p, attention)]
    gemms = [len(_GEMMS & set(p)) for p in joined]
    row[STRUCTURE : STRUCTURE + len(_COUNTS)] = (
        len(parts),
        sum(len(p) == 1 for p in parts),
        max(map(len, joined), default=1),
        sum(g > 1 for g in gemms),
        sum(g == 1 for g in gemms),
        sum(g == 0 for g in gemms),
        sum(templates.match(p, attention) is not None for p in parts),
    )
    for part in parts:
        row[STRUCTURE + len(_COUNTS) + PART_INDEX[part]] = 1
    if attention:  # the kernel is no torch.compile of 2-7: bit 0 alone stands for it
        row[STRUCTURE + len(_COUNTS) + PART_INDEX[encoding.ATTENTION]] = 0
    row.setflags(write=False)
    return row


def parts(codes: Sequence[str]) -> np.ndarray:
    """The last columns of ``matrix``: which parts each scheme has."""
    return matrix(codes)[:, STRUCTURE + len(_COUNTS) :]
