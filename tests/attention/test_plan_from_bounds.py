"""Plans from bounds are, bit for bit, those of every element: of every mask with drawn parameters, and of any
formula."""

from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fusescope import masks
from fusescope.masks import Bound
from fusescope.ops.attention import prepare
from fusescope.ops.attention.plan import from_bounds, tile_lists, tiles
from tests.attention.attention_tools import mask_text

CPU = torch.device("cpu")
NEEDS_EVERY_ELEMENT = {"random"}  # each is drawn for itself
LENGTHS = st.sampled_from((1, 63, 64, 65, 100, 128, 150, 257, 390))
NUMBERS = st.sampled_from((0, 1, 2, 3, 7, 16, 33, 64, 65, 128, 200, 1 << 20))


def _by_element(bound, moduli=(1, 1)):
    def part(number, rows, columns):
        return tiles.evaluate(bound, number, rows, columns, "cpu", moduli)

    return tile_lists.of_parts(bound.sequences or 1, bound.seq_q, bound.seq_k, part, CPU)


def _check(bound, by_numpy, factor=2, first=1, piece=40, evaluated=1, moduli=(1, 1)):
    """With pieces so small that squares are divided often, and tiles compared by keys."""
    small = {"_FIRST": first, "_PIECE": piece, "_EVALUATED": evaluated}
    changed = {name: dict.fromkeys(("numpy", "torch"), value) for name, value in small.items()}
    with patch.multiple(from_bounds, _FACTOR=factor, **changed):
        found, *figures = from_bounds.tile_lists(bound, CPU, by_numpy=by_numpy, moduli=moduli)
    expected, *counted = _by_element(bound, moduli)
    assert figures == counted
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype and torch.equal(one, other)


def _values(draw, name, seq_k):
    """Drawn parameters of a mask, by their kinds; lengths that fit together."""
    values = {}
    for parameter in masks.definition(name).PARAMETERS:
        lists = st.lists(st.integers(0, seq_k // 3), min_size=1, max_size=3)
        if parameter.kind == "int":
            low, high = max(0, parameter.low), parameter.high
            values[parameter.name] = min(high, max(low, draw(NUMBERS)))
        elif parameter.kind == "bool":
            values[parameter.name] = draw(st.booleans())
        elif parameter.kind == "ints/" and draw(st.booleans()):
            values[parameter.name] = draw(st.lists(lists, min_size=1, max_size=3))
        elif parameter.kind.startswith("ints"):
            values[parameter.name] = draw(lists)
    return values


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(masks.names()) - NEEDS_EVERY_ELEMENT))
@settings(max_examples=8, deadline=None)
@given(data=st.data(), by_numpy=st.booleans(), factor=st.sampled_from((2, 3, 16)))
def test_any_mask_with_any_parameters(name, data, by_numpy, factor):
    seq_q, seq_k = data.draw(LENGTHS), data.draw(LENGTHS)
    bound = masks.load(name, **_values(data.draw, name, seq_k)).bind(seq_q, seq_k)
    _check(bound, by_numpy, factor)
    _check(bound, by_numpy, 16, 1 << 12, 1 << 15, 64)


SMALL = st.integers(-70, 70)
WHOLE = st.recursive(
    st.sampled_from((lambda q, k, p: q, lambda q, k, p: k)),
    lambda inner: st.one_of(
        st.builds(lambda a, b: lambda q, k, p: a(q, k, p) + b(q, k, p), inner, inner),
        st.builds(lambda a, b: lambda q, k, p: a(q, k, p) - b(q, k, p), inner, inner),
        st.builds(lambda a, n: lambda q, k, p: n - a(q, k, p), inner, SMALL),
        st.builds(lambda a, n: lambda q, k, p: a(q, k, p) * n, inner, st.integers(-3, 3)),
        st.builds(lambda a, n: lambda q, k, p: a(q, k, p) // n, inner, st.integers(1, 90)),
        st.builds(lambda a, n: lambda q, k, p: a(q, k, p) % n, inner, st.integers(1, 90)),
        st.builds(lambda a, n: lambda q, k, p: a(q, k, p) >> n, inner, st.integers(0, 7)),
        st.builds(lambda a, n: lambda q, k, p: a(q, k, p) & (2**n - 1), inner, st.integers(0, 7)),
        st.builds(lambda a: lambda q, k, p: abs(a(q, k, p)), inner),
        st.builds(lambda a: lambda q, k, p: p.numbers[a(q, k, p) % 37], inner),
        st.builds(lambda a, b: lambda q, k, p: p.grid[a(q, k, p) // 16 % 9, b(q, k, p) % 5], inner, inner),
    ),
    max_leaves=4,
)
COMPARED = st.one_of(
    st.builds(lambda a, b: lambda q, k, p: a(q, k, p) <= b(q, k, p), WHOLE, WHOLE),
    st.builds(lambda a, n: lambda q, k, p: a(q, k, p) < n, WHOLE, SMALL),
    st.builds(lambda a, n: lambda q, k, p: n < a(q, k, p), WHOLE, SMALL),
    st.builds(lambda a, n: lambda q, k, p: a(q, k, p) >= n, WHOLE, SMALL),
    st.builds(lambda a, n: lambda q, k, p: a(q, k, p) == n, WHOLE, SMALL),
    st.builds(lambda a, b: lambda q, k, p: a(q, k, p) != b(q, k, p), WHOLE, WHOLE),
    st.builds(
        lambda a, b: lambda q, k, p: p.truths[a(q, k, p) // 48 % 6, b(q, k, p) // 16 % 11], WHOLE, WHOLE
    ),
)
TRUTH = st.recursive(
    COMPARED,
    lambda inner: st.one_of(
        st.builds(lambda a, b: lambda q, k, p: a(q, k, p) & b(q, k, p), inner, inner),
        st.builds(lambda a, b: lambda q, k, p: a(q, k, p) | b(q, k, p), inner, inner),
        st.builds(lambda a, b: lambda q, k, p: a(q, k, p) ^ b(q, k, p), inner, inner),
        st.builds(lambda a: lambda q, k, p: ~a(q, k, p), inner),
    ),
    max_leaves=3,
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    truth=TRUTH,
    seq_q=LENGTHS,
    seq_k=LENGTHS,
    by_numpy=st.booleans(),
    seed=st.integers(0, 9),
    most=st.integers(1, 3),
)
def test_any_formula(truth, seq_q, seq_k, by_numpy, seed, most):
    random = np.random.default_rng(seed)
    tables = {
        "numbers": random.integers(-most, most, 37).astype(np.int32),
        "grid": random.integers(0, most, (9, 5)),
        "truths": random.random((6, 11)) < random.random(),
    }

    def formula(q, k, p, batch):
        return truth(q, k, p) & (q == q)

    bound = Bound(masks.load("causal"), seq_q, seq_k, {}, tables, formula, None)
    _check(bound, by_numpy, 2, 4, 64, 2)


ORDERED = ((128, 2), (192, 3), (256, 8), (320, 5), (96, 3), (384, 6))  # (length, modulus)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    truth=TRUTH,
    rows=st.sampled_from((*ORDERED, (150, 1))),
    keys=st.sampled_from((*ORDERED, (101, 1))),
    by_numpy=st.booleans(),
)
def test_any_formula_in_strided_permuted_order(truth, rows, keys, by_numpy):
    """Rows, keys or both, of one modulus or of two."""
    random = np.random.default_rng(1)
    tables = {
        "numbers": random.integers(-2, 2, 37).astype(np.int32),
        "grid": random.integers(0, 2, (9, 5)),
        "truths": random.random((6, 11)) < 0.3,
    }

    def formula(q, k, p, batch):
        near = (q - k) // 6 % 3 + (q - k) % 2 + q // 3 - k % keys[1]
        return truth(q, k, p) & (near > -40)

    bound = Bound(masks.load("causal"), rows[0], keys[0], {}, tables, formula, None)
    _check(bound, by_numpy, 2, 4, 64, 2, (rows[1], keys[1]))


@pytest.mark.parametrize("text", ("dilated:dilation=4", "strided:stride=64", "fixed:block=128"))
def test_few_elements_of_a_part_are_evaluated(text, monkeypatch):
    seen, own = [], Bound.predicate

    def counted(self, q, k, batch=None):
        seen.append(np.broadcast(q, k).size)
        return own(self, q, k, batch)

    monkeypatch.setattr(Bound, "predicate", counted)
    for part in masks.parse(text).parts(4096, 4096):
        tile_lists.of_bound(part.bound, CPU, (part.rows, part.keys))
    assert 0 < sum(seen) <= 4096 * 4096 // 100


@pytest.mark.parametrize("name", sorted(set(masks.names()) - NEEDS_EVERY_ELEMENT))
def test_few_elements_are_evaluated(name, monkeypatch):
    """Of 4096 × 4096 less than a hundredth, and only once for tiles that are alike."""
    seen = []
    own = Bound.predicate

    def counted(self, q, k, batch=None):
        seen.append(np.broadcast(q, k).size)
        return own(self, q, k, batch)

    monkeypatch.setattr(Bound, "predicate", counted)
    made = from_bounds.tile_lists(masks.parse(mask_text(name, 2, 4096)).bind(4096, 4096), CPU)
    assert sum(seen) <= 4096 * 4096 // 100, made[1:]


@pytest.mark.parametrize(
    "formula",
    (
        lambda q, k, p, batch: (q * q - k) ** 2 % 7 < 3,
        lambda q, k, p, batch: np.sqrt(q + k) < 9,
        lambda q, k, p, batch: q < k + 0.5,
        lambda q, k, p, batch: p.keep[q[:, :1], k],
        lambda q, k, p, batch: (q + k).astype(np.int64) % 3 == 0,
        lambda q, k, p, batch: (q * (1 << 15) * (1 << 15) < 0) | (k <= q),
        lambda q, k, p, batch: [q <= k][0] if np.ndim(q) else None,
    ),
    ids=("power", "NumPy", "float", "slice", "dtype", "beyond 32 bits", "no flags"),
)
def test_other_formulas_are_evaluated_element_by_element(formula):
    keep = np.random.default_rng(0).random((100, 130)) < 0.5
    bound = Bound(
        masks.load("causal"), 100, 130, {}, {"keep": np.pad(keep, ((30, 0), (0, 0)))}, formula, None
    )
    with pytest.raises((TypeError, AttributeError)):
        from_bounds.tile_lists(bound, CPU)
    with patch.object(type(bound.mask), "bind", lambda *sizes: bound):
        made = prepare(masks.load("prefix_lm", prefix=hash(formula) % 1000), 100, 130)
    assert np.array_equal(made.dense()[0, 0].numpy(), bound.dense())


def test_an_error_of_the_formula_itself_is_raised():
    def formula(q, k, p, batch):
        return p.misspelt < k

    bound = Bound(masks.load("causal"), 100, 130, {}, {}, formula, None)
    with (
        patch.object(type(bound.mask), "bind", lambda *sizes: bound),
        pytest.raises(AttributeError, match="misspelt"),
    ):
        prepare(masks.load("prefix_lm", prefix=4321), 100, 130)
