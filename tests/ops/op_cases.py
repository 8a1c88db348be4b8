"""Which cases every operator is tried on: odd sizes in every dimension, found from its parameters."""

from __future__ import annotations

from backend import ops

SIZES = (1, 7, 33, 1000)
DIAGONAL = {"gemm": ("m", "n", "k"), "softmax": ("rows", "cols"), "layernorm": ("rows", "cols")}
"""Dimensions that are also given the odd sizes all at once."""

EXTRA = {
    "gemm": [{"m": 130, "n": 257, "k": 64}, {"m": 64, "n": 72, "k": 520}],
    "bmm": [
        {"batch_a": "2x1", "batch_b": "3", "m": 7, "n": 33, "k": 9},
        {"batch_a": "none", "batch_b": "2x3", "m": 33, "n": 8, "k": 16},
        {"batch_a": "2x3", "batch_b": "none", "m": 5, "n": 64, "k": 40},
        {"batch_a": "2x1x2", "batch_b": "1x3x1", "m": 1, "n": 1, "k": 7},
    ],
    "softmax": [{"rows": 3, "cols": c} for c in (8, 300, 1024, 1536, 4096, 5000, 16384, 32768, 70001)],
    "layernorm": [{"rows": 3, "cols": c} for c in (8, 300, 1024, 1536, 4096, 5000, 16384, 32768, 70001)],
}


def cases(op: str) -> list[dict]:
    """Complete cases: each parameter worth sweeping at each odd size with the others small, the diagonals, and the extra ones."""
    module = ops.load(op)
    swept = [p for p in module.PARAMETERS if p.sweep and p.kind == "int"]
    wanted = [{p.name: p.low or 1 for p in swept} | {p.name: size} for p in swept for size in SIZES if p.low <= size <= p.high]
    wanted += [dict.fromkeys(DIAGONAL[op], size) for size in SIZES] if op in DIAGONAL else []
    wanted += EXTRA.get(op, [])
    found = []
    for values in wanted:
        try:
            complete = module.validate(values)
        except ValueError:  # a size that this operator refuses, such as a head size that is no multiple of 8
            continue
        if complete not in found:
            found.append(complete)
    return found
