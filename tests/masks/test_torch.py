"""The predicate gives the same in torch as in NumPy: on tensors, under vmap, in FlexAttention and in a
compiled function."""

import numpy as np
import pytest

from fusescope import masks

torch = pytest.importorskip("torch")

SEQ_Q, SEQ_K = 40, 56


def example(name):
    return masks.load(
        name, **{"padding": {"lengths": [56, 7, 30]}, "document": {"lengths": [[20, 30], [56]]}}.get(name, {})
    )


@pytest.mark.parametrize("name", masks.names())
def test_tensors_agree(name):
    bound = example(name).bind(SEQ_Q, SEQ_K)
    dense = bound.dense()
    for kind in (torch.int64, torch.int32):
        q = torch.arange(SEQ_Q, dtype=kind)[:, None] + bound.offset
        k = torch.arange(SEQ_K, dtype=kind)[None, :]
        if bound.per_sequence:
            got = bound.predicate(q[None], k[None], torch.arange(bound.sequences)[:, None, None])
        else:
            got = bound.predicate(q, k)
        assert got.dtype == torch.bool and np.array_equal(got.numpy(), dense)


@pytest.mark.parametrize("name", masks.names())
def test_mask_mod_of_flex_attention(name):
    from torch.nn.attention.flex_attention import create_mask

    bound = example(name).bind(SEQ_Q, SEQ_K)

    def written_by_hand(b, h, q, k):
        return bound.predicate(q + bound.offset, k, b)

    batch = bound.sequences or 1
    for mask_mod in (bound.mask_mod("cpu"), written_by_hand):
        got = create_mask(mask_mod, batch, 1, SEQ_Q, SEQ_K, device="cpu")[:, 0].numpy()
        assert np.array_equal(got if bound.per_sequence else got[0], bound.dense())


def test_dense_masks_in_torch():
    array = np.random.default_rng(1).random((2, SEQ_Q, SEQ_K)) < 0.5
    bound = masks.from_dense(array).bind(SEQ_Q, SEQ_K)
    q, k = torch.arange(SEQ_Q)[None, :, None] + bound.offset, torch.arange(SEQ_K)[None, None]
    assert np.array_equal(bound.predicate(q, k, torch.arange(2)[:, None, None]).numpy(), array)


def test_draws_at_the_ends_of_their_range():
    """Seeds and positions that reach the sign bit of a 64-bit number draw the same in both."""
    mask = masks.load("random", density=0.5, seed=(1 << 24) - 1)
    bound = mask.bind(1 << 20, 1 << 20)
    q = np.array([0, 1, (1 << 19) + 3, (1 << 20) - 1])[:, None]
    k = np.array([0, 5, (1 << 20) - 1])[None]
    assert np.array_equal(
        bound.predicate(torch.from_numpy(q), torch.from_numpy(k)).numpy(), bound.predicate(q, k)
    )


def test_compiled_without_a_break():
    bounds = [masks.load(name).bind(SEQ_Q, SEQ_K) for name in ("bigbird", "random")]
    mods = [b.mask_mod("cpu") for b in bounds]

    def both(q, k):
        return [mod(0, 0, q, k) for mod in mods]

    q, k = torch.arange(SEQ_Q)[:, None], torch.arange(SEQ_K)[None]
    for got, bound in zip(torch.compile(both, fullgraph=True, backend="aot_eager")(q, k), bounds):
        assert np.array_equal(got.numpy(), bound.dense())
