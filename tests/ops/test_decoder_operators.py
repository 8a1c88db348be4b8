"""The operators of a decoder's layer: as functions, as torch sees them, and exact errors."""

import pytest
import torch
from rope_tools import what_is_wrong, what_is_wrong_in_fp8

from fusescope import kernels
from fusescope.core.errors import Unsupported
from fusescope.ops.common import rope
from fusescope.ops.layer.rmsnorm_residual import rmsnorm_residual
from fusescope.ops.layer.rope_cache import rope_cache
from fusescope.ops.layer.swiglu import swiglu

LLAMA_31 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def randn(*shape, device="cpu", dtype=None):
    made = torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))
    return made.to(device=device, dtype=dtype)


def _rope(d="cpu", batch=2, tokens=3):
    """Arguments of rope_cache: caches of 8 places, positions from 5 and 0 on."""
    q, k, v = randn(batch, tokens, 8, 8, device=d).split((4, 2, 2), 2)
    table = rope.cos_sin(torch.arange(8, device=d), rope.inverse_frequencies(8, device=d))
    first = torch.tensor([5, 0], dtype=torch.int32, device=d)
    caches = torch.zeros(2, batch, 2, 8, 8, device=d)
    return q, k, v, table, first, *caches.unbind()


def test_the_norm_of_heads_of_a_packed_product_and_without_a_residual(device):
    heads = randn(2, 5, 9, 16, device=device)[:, :, 2:6]
    weight = randn(16, device=device)
    norm, total = rmsnorm_residual(heads, weight, eps=1e-5)
    right = torch.nn.functional.rms_norm(heads, (16,), weight, 1e-5)
    torch.testing.assert_close(norm, right)
    assert total is heads and norm.is_contiguous()
    norm, total = rmsnorm_residual(heads, weight, heads[:1].expand(2, 5, 4, 16), 1e-5)
    sums = heads + heads[:1]
    torch.testing.assert_close(total, sums)
    torch.testing.assert_close(norm, torch.nn.functional.rms_norm(sums, (16,), weight, 1e-5))
    assert rmsnorm_residual(heads[:0], weight, heads[:0])[1].shape == (0, 5, 4, 16)


def test_gate_and_up_in_one_tensor_or_two(device):
    packed = randn(2, 3, 20, device=device)
    right = torch.nn.functional.silu(packed[..., :10]) * packed[..., 10:]
    torch.testing.assert_close(swiglu(packed), right)
    torch.testing.assert_close(swiglu(packed[..., :10], packed[..., 10:].clone()), right)
    edges = torch.tensor([torch.inf, torch.nan, 0.0, -0.0, 1e30, -1e30, 90.0, -90.0], device=device)
    ones = torch.ones_like(edges)
    torch.testing.assert_close(swiglu(edges, ones), torch.nn.functional.silu(edges), equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_nothing_outside_is_written_and_special_rotations_are_right(dtype, device):
    impls = ("cpu",) if device == "cpu" else ("v1_one_element", "v2_vectorised")
    for impl in impls:
        assert what_is_wrong(impl, dtype, device) is None
        assert what_is_wrong_in_fp8(impl, dtype, device) is None


def test_first_positions_are_those_of_all_tokens(device):
    q, k, v, table, first, *caches = _rope(device)
    found = rope_cache(q, k, v, table, first, *caches)
    assert found[1] is caches[0] and found[2] is caches[1]
    torch.testing.assert_close(caches[1][0, :, 5:8], v[0].transpose(0, 1), rtol=0, atol=0)
    assert not caches[1][0, :, :5].any() and not caches[1][1, :, 3:].any()
    positions = first[:, None].long() + torch.arange(3, device=device)
    again = rope_cache(q, k, v, table, positions, *(torch.zeros_like(c) for c in caches))
    by_token = rope_cache(q, k, v, table[positions], positions, *(torch.zeros_like(c) for c in caches))
    for other in (again, by_token):
        for one, two in zip(found, other):
            assert torch.equal(one, two)


def test_frequencies_of_llama_31_are_those_of_transformers():
    """Values of transformers 5.23 for head size 128, theta 500000: pairs that are kept, blended, divided."""
    found = rope.inverse_frequencies(128, 500000.0, LLAMA_31)
    right = {
        0: 1.0,
        20: 0.016560440883040428,
        28: 0.0032114461064338684,
        29: 0.0021665706299245358,
        31: 0.0008567514596506953,
        35: 9.556212171446532e-05,
        36: 7.784655463183299e-05,
        63: 3.068925877869333e-07,
    }
    for pair, value in right.items():
        assert float(found[pair]) == pytest.approx(value, rel=3e-6)
    half = rope.inverse_frequencies(128, 500000.0, {"rope_type": "linear", "factor": 2})
    assert torch.equal(half, rope.inverse_frequencies(128, 500000.0) / 2)
    for scaling, says in (({"rope_type": "yarn"}, "not 'yarn'"), ({"rope_type": "linear"}, "needs factor")):
        with pytest.raises(ValueError, match=says):
            rope.inverse_frequencies(8, scaling=scaling)
    with pytest.raises(ValueError, match="not 7"):
        rope.inverse_frequencies(7)


CALLS = {
    "rmsnorm_residual": lambda d: (randn(3, 8, device=d), randn(3, 8, device=d), randn(8, device=d), 1e-6),
    "swiglu": lambda d: tuple(randn(3, 16, device=d).chunk(2, -1)),
    "rope_cache": lambda d: (*_rope(d)[:5], None, *_rope(d)[5:], None),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_opcheck(name, device):
    kernels.load(device, (name,))
    operator = getattr(torch.ops.fusescope, name).default
    torch.library.opcheck(operator, (*CALLS[name](device), kernels.choose(name, device)))


@pytest.mark.slow
def test_functions_compile_without_a_graph_break(device):
    """torch.compile keeps the write into the caches, which nothing reads in the graph."""
    q, k, v, table, first, *caches = _rope(device)
    weight = randn(64, device=device).abs()

    def layer(q, k, v, first, keys, values):
        turned, _, _ = rope_cache(q, k, v, table, first, keys, values)
        norm, total = rmsnorm_residual(
            turned.flatten(2).repeat(1, 1, 2), weight, q.flatten(2).repeat(1, 1, 2)
        )
        return swiglu(norm) + total[..., :32]

    given = [[c.clone() for c in caches] for _ in range(2)]
    right = layer(q, k, v, first, *given[0])
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(q, k, v, first, *given[1]), right)
    assert given[0][0].any() and all(torch.equal(a, b) for a, b in zip(*given))


def _changed(**changes):
    """rope_cache's refusal of these arguments in the place of good ones."""
    names = ("q", "k", "v", "cos_sin", "positions", "k_cache", "v_cache")

    def call():
        return rope_cache(**(dict(zip(names, _rope())) | changes))

    return call


REFUSED = {
    "weight": (TypeError, "ones where the norm has none", lambda: rmsnorm_residual(randn(2, 8), None)),
    "eps": (ValueError, "eps is at least 0, not -1", lambda: rmsnorm_residual(randn(2, 8), randn(8), eps=-1)),
    "residual": (
        ValueError,
        r"shape of x, \(2, 8\); not \(1, 8\)",
        lambda: rmsnorm_residual(randn(2, 8), randn(8), randn(1, 8)),
    ),
    "odd rows": (ValueError, r"an even number of elements; not \(2, 7\)", lambda: swiglu(randn(2, 7))),
    "up": (ValueError, r"not \(2, 8\) and \(2, 4\)", lambda: swiglu(randn(2, 8), randn(2, 4))),
    "heads": (ValueError, r"not \(2, 3, 4, 8\), \(2, 3, 8\)", _changed(k=randn(2, 3, 8), v=randn(2, 3, 8))),
    "cache": (ValueError, r"\(B, H_kv, L, D\).*not \(1, 2", _changed(k_cache=randn(1, 2, 8, 8))),
    "angles": (TypeError, "dense float32 tensor", _changed(cos_sin=randn(8, 8).double())),
    "too many angles": (ValueError, r"at most D = 8; not \(8, 10\)", _changed(cos_sin=randn(8, 10))),
    "position": (ValueError, "0 … 7, the rows of cos_sin; positions holds 8", lambda: _at([6, 0])),
    "place": (ValueError, "0 … 7, the room of a sequence; places holds 8", lambda: _at([0, 0], [6, 0])),
    "page": (ValueError, "pages lie in 0 … 1; block_table holds 2", lambda: _paged([[1], [2]])),
    "page size": (ValueError, "16 to 256 places, not 8", lambda: _paged([[1], [0]], 8)),
    "table": (TypeError, "block_table is an int32 tensor", _changed(block_table=torch.zeros(2, 1))),
    "scale": (ValueError, "need k_scale and v_scale; v_scale is None", lambda: _fp8(v_scale=None)),
    "scale of other heads": (
        ValueError,
        r"one number for each head of k .* not \(3,\)",
        lambda: _fp8(k_scale=torch.ones(3)),
    ),
    "scale's dtype": (TypeError, "k_scale is a dense float32", lambda: _fp8(k_scale=torch.ones(2).double())),
    "scale of 0": (
        ValueError,
        "v_scale holds positive finite numbers, not 0",
        lambda: _fp8(v_scale=torch.zeros(2)),
    ),
    "scales of other caches": (
        TypeError,
        "takes float8_e4m3fn; k_cache is float32",
        _changed(k_scale=torch.ones(2), v_scale=torch.ones(2)),
    ),
    "gradient": (Unsupported, "forward only", _changed(q=randn(2, 3, 4, 8).requires_grad_())),
}


def _at(positions, places=None):
    return _changed(
        positions=torch.tensor(positions), places=None if places is None else torch.tensor(places)
    )()


def _fp8(**changes):
    caches = {name: torch.zeros(2, 2, 8, 8).to(torch.float8_e4m3fn) for name in ("k_cache", "v_cache")}
    return _changed(**caches, **{"k_scale": torch.ones(2), "v_scale": torch.ones(2)} | changes)()


def _paged(table, page=16):
    caches = {name: torch.zeros(2, 2, page, 8) for name in ("k_cache", "v_cache")}
    return _changed(**caches, block_table=torch.tensor(table, dtype=torch.int32))()


@pytest.mark.parametrize("what", REFUSED)
def test_operands_that_do_not_fit(what):
    kind, says, call = REFUSED[what]
    with pytest.raises(kind, match=says):
        call()
