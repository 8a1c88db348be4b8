"""Sums of a mask, which its formula gives for whole squares, against its tiles, cut element by element."""

import numpy as np
import pytest

from fusescope import masks
from fusescope.masks import counting, layout

FORMULAS = [
    "full",
    "causal",
    "sliding_window:left=3,right=0",
    "sliding_window:left=0,right=70",
    "prefix_lm",
    "longformer:window=5,global_tokens=2",
    "dilated:window=9,dilation=3",
    "strided:window=5,stride=7",
    "fixed",
    "random:density=0.02",
]
OTHERS = ["document", "document:lengths=20+30/50", "padding:lengths=50+0+13", "bigbird:window=3,block=4"]


def by_tiles(mask, *size):
    cut = layout.tiles(mask, *size)
    some = cut.row_counts[cut.row_counts > 0]
    return counting.Counts(
        kept=cut.kept,
        executed=cut.executed,
        elements=cut.elements,
        live=cut.live,
        fewest=some.min() if some.size else 0,
        longest=cut.row_counts.max(),
        longest_in_tiles=cut.live_map.sum(axis=-1).max(),
    )


@pytest.mark.parametrize("tile", [1, 13, 64, 300])
@pytest.mark.parametrize("size", [(41, 57), (57, 41), (200, 200), (1, 130), (130, 1)])
@pytest.mark.parametrize("text", FORMULAS)
def test_they_are_the_sums_of_tiles(text, size, tile):
    mask = masks.parse(text)
    assert counting.counts(mask, *size, tile) == by_tiles(mask, *size, tile)


@pytest.mark.parametrize("text", OTHERS)
def test_a_mask_with_tables_is_cut_into_tiles(text):
    mask = masks.parse(text)
    assert counting.counts(mask, 60, 70) == by_tiles(mask, 60, 70)


def test_a_matrix_and_a_mask_that_keeps_nothing():
    matrix = masks.from_dense(np.eye(90, 100, dtype=bool))
    assert counting.counts(matrix, 90, 100) == counting.Counts(90, 64 * 64 + 26 * 36, 9000, 2, 1, 1, 1)
    nothing = masks.from_dense(np.zeros((90, 100), bool))
    assert counting.counts(nothing, 90, 100) == counting.Counts(0, 0, 9000, 0, 0, 0, 0)


N = 1 << 20


@pytest.mark.parametrize(
    "text, kept",
    [
        ("full", N * N),
        ("causal", N * (N + 1) // 2),
        ("sliding_window:left=128,right=0", N * 129 - 128 * 129 // 2),
        ("prefix_lm", N // 4 * N + 3 * N // 4 * (3 * N // 4 + 1) // 2),
    ],
)
def test_what_the_formula_decides_is_not_looked_at(text, kept):
    """2^40 elements: one by one they take days."""
    mask = masks.parse(text)
    assert counting.quick(mask, N, N)
    found = counting.counts(mask, N, N)
    assert (found.kept, found.elements) == (kept, N * N) and kept <= found.executed < 2 * kept


@pytest.mark.parametrize("text", ["bigbird", "random", "strided"])
def test_what_takes_minutes_is_not_quick(text):
    assert not counting.quick(masks.parse(text), 1 << 20, 1 << 20)
    assert counting.quick(masks.parse(text), 1 << 15, 1 << 15)


def test_a_case_without_a_mask_is_countable():
    assert counting.countable({"m": 1 << 30})
    assert counting.countable({"seq": 1 << 20, "mask": "causal"})
    assert not counting.countable({"seq": 1 << 14, "seq_k": 1 << 18, "mask": "bigbird"})
