"""Tiles, lists, bitmaps, formats and their sizes against a dense matrix cut up by hand."""

import numpy as np
import pytest

from fusescope import masks
from fusescope.masks import layout, sparse

MASKS = [
    "full",
    "causal",
    "bigbird:window=3,global_tokens=2,block=4",
    "sliding_window:left=9,right=0",
    "random:density=0.02",
    "document",
    "padding:lengths=50+0+13",
    "document:lengths=20+30/50",
]


def by_hand(dense, tile):
    """Kept elements and size of every tile, with loops."""
    rows, columns = -(-dense.shape[0] // tile), -(-dense.shape[1] // tile)
    pieces = [
        [dense[i * tile : (i + 1) * tile, j * tile : (j + 1) * tile] for j in range(columns)]
        for i in range(rows)
    ]
    return (
        np.array([[p.sum() for p in row] for row in pieces]),
        np.array([[p.size for p in row] for row in pieces]),
        pieces,
    )


@pytest.mark.parametrize("tile", [1, 8, 13, 64, 300])
@pytest.mark.parametrize("text", MASKS)
def test_tiles(text, tile):
    mask = masks.parse(text)
    cut = layout.tiles(mask, 41, 57, tile)
    dense = mask.dense(41, 57)
    per_sequence = dense if mask.per_sequence else dense[None]
    counts = [by_hand(d, tile)[0] for d in per_sequence]
    sizes = by_hand(per_sequence[0], tile)[1]
    assert np.array_equal(cut.counts, counts if mask.per_sequence else counts[0])
    assert np.array_equal(cut.sizes, sizes)
    assert np.array_equal(cut.row_counts, dense.sum(axis=-1))
    live, full = sum((c > 0).sum() for c in counts), sum((c == sizes).sum() for c in counts)
    assert (cut.live, cut.full, cut.partial, cut.total) == (live, full, live - full, sizes.size * len(counts))
    assert cut.kept == dense.sum() and cut.density == pytest.approx(dense.mean())
    assert cut.executed == sum(sizes[c > 0].sum() for c in counts)
    for listed, c in zip(cut.lists(), counts):
        for i in range(len(c)):
            row = slice(listed.offsets[i], listed.offsets[i + 1])
            assert listed.columns[row].tolist() == np.nonzero(c[i])[0].tolist()
            assert listed.full[row].tolist() == [bool(c[i, j] == sizes[i, j]) for j in listed.columns[row]]


@pytest.mark.parametrize("tile", [8, 13, 64])
@pytest.mark.parametrize("text", MASKS)
def test_bitmaps_rebuild_the_partial_tiles(text, tile):
    mask = masks.parse(text)
    found = layout.bitmaps(mask, 41, 57, tile)
    dense = mask.dense(41, 57)
    expected = []
    for d in dense if mask.per_sequence else dense[None]:
        counts, sizes, pieces = by_hand(d, tile)
        for i, j in np.argwhere((counts > 0) & (counts < sizes)):
            square = np.zeros((tile, tile), bool)
            square[: pieces[i][j].shape[0], : pieces[i][j].shape[1]] = pieces[i][j]
            expected.append(square)
    assert len(found.which) == len(expected)
    assert len({w.tobytes() for w in found.words}) == len(found.words)
    for number, square in zip(found.which, expected):
        bits = np.unpackbits(found.words[number], axis=1, bitorder="little")[:, :tile]
        assert np.array_equal(bits.astype(bool), square)


def test_identical_bitmaps_are_stored_once():
    assert len(layout.bitmaps(masks.load("causal"), 1024).words) == 1


def test_known_shares_of_live_tiles():
    """At S = 4096 BigBird has 30 % of its 128-tiles live and 15 % of its 64-tiles; a window touches each
    neighbour it reaches."""
    bigbird = masks.load("bigbird").bind(4096, 4096)
    assert layout.tiles(bigbird, tile=128).live_share == pytest.approx(0.30, abs=0.01)
    assert layout.tiles(bigbird, tile=64).live_share == pytest.approx(0.15, abs=0.01)
    window = masks.load("sliding_window").bind(4096, 4096)
    assert layout.tiles(window, tile=128).live == 32 + 2 * 31
    assert layout.tiles(window, tile=64).live == 64 + 2 * (63 + 62)


def test_large_tiles_do_not_overflow():
    assert layout.tiles(masks.load("full"), 700, tile=600).counts.tolist() == [
        [360000, 60000],
        [60000, 10000],
    ]


def test_imbalance():
    assert layout.tiles(masks.load("full"), 256).imbalance == 1
    assert layout.tiles(masks.load("longformer", window=1, global_tokens=1), 4096).imbalance > 10
    assert layout.tiles(masks.load("random", density=0.0), 64).imbalance == 0


@pytest.mark.parametrize("text", MASKS)
def test_formats_round_trip_and_storage(text):
    mask = masks.parse(text)
    dense = mask.dense(41, 57)
    cost = layout.storage(layout.tiles(mask, 41, 57, 16))
    total = dict.fromkeys(("dense", "coo", "csr", "bsr"), 0)
    for d in dense if mask.per_sequence else dense[None]:
        coo, csr, bsr = sparse.to_coo(d), sparse.to_csr(d), sparse.to_bsr(d, 16)
        for form in (coo, csr, bsr):
            assert np.array_equal(form.dense(), d)
        total["dense"] += d.nbytes
        total["coo"] += coo.rows.nbytes + coo.columns.nbytes
        total["csr"] += csr.offsets.nbytes // 2 + csr.columns.nbytes  # 4 bytes an offset suffice here
        total["bsr"] += bsr.offsets.nbytes // 2 + bsr.columns.nbytes + bsr.blocks.nbytes
    assert {k: cost[k] for k in total} == total
    assert cost["bitmap"] == (dense.size // 57) * 8
    assert cost["tiles"] <= cost["bsr"]


def test_formats_agree_with_scipy():
    scipy = pytest.importorskip("scipy.sparse")
    dense = masks.load("random", density=0.1).dense(48, 64)
    ours, theirs = sparse.to_csr(dense), scipy.csr_array(dense)
    assert np.array_equal(ours.columns, theirs.indices) and np.array_equal(ours.offsets, theirs.indptr)
    theirs = scipy.csr_array(dense).tobsr((16, 16))
    theirs.sort_indices()
    ours = sparse.to_bsr(dense, 16)
    assert np.array_equal(ours.columns, theirs.indices) and np.array_equal(ours.blocks, theirs.data)


def test_wrong_arguments():
    with pytest.raises(ValueError, match="tile must be an integer from 1 to 65,535, not 0"):
        layout.tiles(masks.load("full"), 8, tile=0)
    with pytest.raises(ValueError, match="needs seq_q"):
        layout.tiles(masks.load("full"))
    with pytest.raises(ValueError, match="boolean matrix"):
        sparse.to_csr(np.zeros((2, 2)))
    with pytest.raises(ValueError, match="at least 1, not 0"):
        sparse.to_bsr(np.zeros((2, 2), bool), 0)


@pytest.mark.slow
def test_memory_stays_far_below_the_matrix():
    """16384 × 16384 elements are 268 MB as booleans; cutting them into tiles needs a small part of it."""
    import tracemalloc

    tracemalloc.start()
    cut = layout.tiles(masks.load("longformer"), 16384)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert cut.total == 256 * 256 and peak < 100e6
