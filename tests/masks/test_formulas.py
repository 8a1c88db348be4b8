"""Every mask against its formula written out again, element by element, in plain Python."""

import numpy as np
import pytest

from fusescope import masks

GAMMA, M = 0x9E3779B97F4A7C15, (1 << 64) - 1


def splitmix64(x):
    z = (x + GAMMA) & M
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & M
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & M
    return z ^ (z >> 31)


def score(seed, r, c):
    return splitmix64((seed * 2**40 + r * 2**20 + c) & M)


def document_of(position, lengths):
    if position < 0:
        return None
    for number, length in enumerate(lengths):
        if position < length:
            return number
        position -= length
    return None


def drawn(v, r, c, seq_k):
    columns = -(-seq_k // v["block"])
    ranked = sorted(range(columns), key=lambda x: score(v["seed"], r, x))
    return c in ranked[: v["random_blocks"]]


def longformer(q, k, v, seq_k):
    return abs(q - k) <= v["window"] or q < v["global_tokens"] or k < v["global_tokens"]


FORMULAS = {
    "full": lambda q, k, v, s: True,
    "causal": lambda q, k, v, s: k <= q,
    "sliding_window": lambda q, k, v, s: -v["left"] <= k - q <= v["right"],
    "dilated": lambda q, k, v, s: abs(q - k) <= v["window"] * v["dilation"] and (q - k) % v["dilation"] == 0,
    "strided": lambda q, k, v, s: k <= q and (q - k < v["window"] or (q - k) % v["stride"] == 0),
    "fixed": lambda q, k, v, s: (
        k <= q and (q // v["block"] == k // v["block"] or k % v["block"] >= v["block"] - v["summary"])
    ),
    "longformer": longformer,
    "bigbird": lambda q, k, v, s: longformer(q, k, v, s) or drawn(v, q // v["block"], k // v["block"], s),
    "prefix_lm": lambda q, k, v, s: k <= q or k < v["prefix"],
    "document": lambda q, k, v, s: (
        document_of(q, v["lengths"]) is not None
        and document_of(q, v["lengths"]) == document_of(k, v["lengths"])
        and (k <= q or not v["causal"])
    ),
    "padding": lambda q, k, v, s: k < v["lengths"][0],
    "random": lambda q, k, v, s: score(v["seed"], q, k) / 2**64 < v["density"],
}

SMALL = {
    "sliding_window": {"left": 5, "right": 2},
    "dilated": {"window": 3, "dilation": 3},
    "strided": {"window": 4, "stride": 6},
    "fixed": {"block": 7, "summary": 2},
    "longformer": {"window": 3, "global_tokens": 2},
    "bigbird": {"window": 2, "global_tokens": 1, "random_blocks": 2, "block": 4, "seed": 5},
    "prefix_lm": {"prefix": 6},
    "document": {"lengths": (3, 0, 9, 4), "causal": True},
    "padding": {"lengths": (5,)},
    "random": {"density": 0.3, "seed": 9},
}

SIZES = [(1, 1), (7, 7), (33, 33), (1, 33), (9, 33), (33, 19)]


def test_every_mask_has_a_formula_here():
    assert set(FORMULAS) == set(masks.names())


@pytest.mark.parametrize("seq_q,seq_k", SIZES)
@pytest.mark.parametrize("name", sorted(FORMULAS))
def test_formula(name, seq_q, seq_k):
    values = dict(SMALL.get(name, {}))
    if name == "document":
        values["lengths"] = (seq_k // 3, 0, seq_k // 4, seq_k // 5)
    if name == "padding":
        values["lengths"] = (min(5, seq_k),)
    mask = masks.load(name, **values)
    got = mask.dense(seq_q, seq_k)
    if mask.per_sequence:
        assert got.shape == (1, seq_q, seq_k)
        got = got[0]
    v = mask.bind(seq_q, seq_k).values
    shift = seq_k - seq_q
    expected = np.array(
        [[FORMULAS[name](i + shift, j, v, seq_k) for j in range(seq_k)] for i in range(seq_q)]
    )
    assert got.dtype == np.bool_
    assert np.array_equal(got, expected), np.argwhere(got != expected)[:5]


@pytest.mark.parametrize("name", ["bigbird", "random"])
def test_draws_where_queries_stand_before_the_first_key(name):
    """Positions are negative there; the draws count them modulo 2^64."""
    mask = masks.load(name, **SMALL[name])
    v = mask.bind(21, 8).values
    expected = np.array([[FORMULAS[name](i - 13, j, v, 8) for j in range(8)] for i in range(21)])
    assert np.array_equal(mask.dense(21, 8), expected)


@pytest.mark.parametrize(
    "seq,w,g,block", [(511, 32, 32, 16), (512, 64, 64, 64), (2047, 64, 64, 64), (2048, 128, 64, 64)]
)
def test_defaults_depend_on_the_keys(seq, w, g, block):
    def values(name):
        return masks.load(name).bind(1, seq).values

    assert values("sliding_window") == {"left": w, "right": w}
    assert values("dilated") == {"window": w, "dilation": 2}
    assert values("strided") == {"window": w, "stride": w}
    assert values("fixed") == {"block": w, "summary": w // 8}
    assert values("longformer") == {"window": w, "global_tokens": g}
    assert values("bigbird") == {
        "window": w,
        "global_tokens": g,
        "random_blocks": 3,
        "block": block,
        "seed": 0,
    }
    assert values("prefix_lm") == {"prefix": seq // 4}
    assert sum(values("document")["lengths"]) == seq and len(values("document")["lengths"]) == 4
    assert values("document")["causal"] is False
    assert values("random") == {"density": 0.1, "seed": 0}


def test_documents_and_padding_may_differ_per_sequence():
    dense = masks.load("document", lengths=[[3, 4], [7]]).dense(7)
    assert dense.shape == (2, 7, 7) and dense[1].all() and dense[0].sum() == 9 + 16
    dense = masks.load("padding", lengths=np.array([3, 0, 7])).dense(7)
    assert dense.sum(axis=2).tolist() == [[3] * 7, [0] * 7, [7] * 7]


def test_large_dense_agrees_with_its_rows():
    bound = masks.load("bigbird").bind(2500, 3000)
    dense = bound.dense()
    for row in (0, 1, 1397, 1398, 2499):
        assert np.array_equal(dense[row], bound.predicate(np.array(row + 500), np.arange(3000)))


def test_the_random_mask_has_its_density():
    for density in (0.0, 0.05, 1.0):
        assert abs(masks.load("random", density=density).dense(600).mean() - density) < 0.002
