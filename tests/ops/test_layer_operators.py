"""The layer's operators as functions: what may be left out, views, special values, exact errors."""

import pytest
import torch
from torch.nn.functional import gelu, layer_norm

from fusescope import ops
from fusescope.core.errors import Unsupported
from fusescope.ops.layer import padding
from fusescope.ops.layer.bias_gelu import bias_gelu
from fusescope.ops.layer.bias_residual_layernorm import bias_residual_layernorm
from fusescope.ops.layer.embedding_layernorm import embedding_layernorm
from fusescope.ops.layer.linear import linear
from fusescope.ops.layer.split_heads import split_heads

INF, NAN = float("inf"), float("nan")


def kernels_of(op, device):
    return [i.name for i in ops.implementations(op, device) if i.kind == "ours" and device in i.devices]


def randn(*shape, device="cpu", dtype=None):
    made = torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))
    return made.to(device=device, dtype=dtype)


VIEWS = {
    "dense": lambda t: t,
    "offset": lambda t: t[1:],
    "gaps": lambda t: t[..., ::2],
    "turned": lambda t: t.transpose(0, -1),
    "expanded": lambda t: t[:1].expand(5, *t.shape[1:]),
    "vector": lambda t: t.reshape(-1),
    "empty": lambda t: t[:0],
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("shape", [(6, 40), (2, 3, 4, 8)])
def test_rows_of_any_view(shape, view, device):
    x = VIEWS[view](randn(*shape, device=device))
    other, bias = VIEWS[view](randn(*shape, 1, device=device)[..., 0] + 1), randn(x.shape[-1], device=device)
    right = layer_norm(x + bias + other, x.shape[-1:], bias, bias, 1e-3)
    torch.testing.assert_close(
        bias_residual_layernorm(x, bias, other, bias, bias, 1e-3), right, rtol=1e-5, atol=1e-5
    )
    torch.testing.assert_close(bias_gelu(x, bias), gelu(x + bias), rtol=1e-5, atol=1e-6)
    weight = randn(7, x.shape[-1], device=device)
    torch.testing.assert_close(linear(x, weight), torch.nn.functional.linear(x, weight), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("given", [(True, True), (True, False), (False, True), (False, False)])
def test_bias_and_residual_may_be_left_out(given, device):
    x, weight, shift = (
        randn(7, 72, device=device),
        randn(72, device=device),
        randn(72, 1, device=device)[:, 0],
    )
    bias, residual = (
        t if g else None for t, g in zip((randn(72, device=device), randn(7, 72, device=device)), given)
    )
    total = x + (0 if bias is None else bias) + (0 if residual is None else residual)
    for impl in kernels_of("bias_residual_layernorm", device):
        found = bias_residual_layernorm(x, bias, residual, weight, shift, impl=impl)
        torch.testing.assert_close(
            found, layer_norm(total, (72,), weight, shift, 1e-12), rtol=1e-5, atol=1e-5
        )
    for approximate in ("none", "tanh"):
        for impl in kernels_of("bias_gelu", device):
            found = bias_gelu(x, bias, approximate, impl=impl)
            right = gelu(x if bias is None else x + bias, approximate=approximate)
            torch.testing.assert_close(found, right, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("cols", [2, 768, 40_000])
def test_norm_of_a_sum_keeps_its_accuracy_far_from_zero(cols, device):
    x, ones = randn(5, cols, device=device), torch.ones(cols, device=device)
    residual = torch.full_like(x, 2.0**14)  # sums with it are exact to 2^-10
    x = (x * 64).round() / 64
    right = layer_norm(x.double(), (cols,), None, None, 1e-5)
    for impl in kernels_of("bias_residual_layernorm", device):
        assert (
            bias_residual_layernorm(x, None, residual, ones, 0 * ones, 1e-5, impl=impl) - right
        ).abs().max() < 2e-4, impl


def test_gelu_of_special_values_is_that_of_torch(device):
    x = torch.tensor([INF, -INF, NAN, 0.0, -0.0, 1e30, -1e30, 88.0, -88.0, -14.0, 1e-30], device=device)
    for approximate in ("none", "tanh"):
        right = gelu(x.double(), approximate=approximate).float()
        for impl in kernels_of("bias_gelu", device):
            torch.testing.assert_close(
                bias_gelu(x, None, approximate, impl=impl), right, equal_nan=True, rtol=1e-6, atol=1e-30
            )


def test_small_results_of_gelu_keep_their_relative_accuracy(device):
    x = torch.linspace(-9, -1, 1000, device=device)
    right = x.double() * torch.erfc(-x.double() / 2**0.5) / 2
    for impl in kernels_of("bias_gelu", device):
        found = bias_gelu(x, None, impl=impl)
        assert ((found - right) / right).abs().max() < 3e-5, (
            "the exponential's argument reaches 40: 40 roundings, and its own"
        )
        assert not ((gelu(x) - right) / right).abs().max() < 3e-5, "the obvious form cannot do that"


def test_heads_are_dense_and_share_one_buffer(device):
    qkv, bias = randn(2, 5, 32, device=device), randn(32, device=device)
    whole = (qkv + bias).view(2, 5, 4, 8)
    for impl in kernels_of("split_heads", device):
        q, k, v = split_heads(qkv, bias, 2, 1, impl=impl)
        assert q.is_contiguous() and k.is_contiguous() and v.is_contiguous()
        assert q.untyped_storage().data_ptr() == v.untyped_storage().data_ptr()
        for found, at in ((q, slice(0, 2)), (k, slice(2, 3)), (v, slice(3, 4))):
            torch.testing.assert_close(found, whole[:, :, at].transpose(1, 2))
        packed = split_heads(qkv.view(10, 32), bias, 2, 1, impl=impl)
        for found, at in zip(packed, (slice(0, 2), slice(2, 3), slice(3, 4))):
            torch.testing.assert_close(found, whole.view(10, 4, 8)[:, at])
        assert torch.equal(split_heads(qkv[..., :24], None, 1, impl=impl)[0], qkv[:, None, :, :8])
    assert [t.shape for t in split_heads(qkv[:0], None, 2, 1)] == [(0, 2, 5, 8), (0, 1, 5, 8), (0, 1, 5, 8)]


@pytest.mark.parametrize("kind", [torch.int32, torch.int64])
def test_packing_goes_there_and_back(kind, device):
    lengths = torch.tensor([3, 0, 5, 1], dtype=kind, device=device)
    x = randn(4, 5, 6, device=device)
    for impl in kernels_of("padding", device):
        packed, cu_seqlens, indices = padding.pack(x, lengths, impl=impl)
        assert cu_seqlens.tolist() == [0, 3, 3, 8, 9] and cu_seqlens.dtype == torch.int32
        assert indices.tolist() == [0, 1, 2, 10, 11, 12, 13, 14, 15]
        assert torch.equal(packed, x.flatten(0, 1)[indices])
        back = padding.unpack(packed, cu_seqlens, 4, 5, impl=impl)
        keep = torch.arange(5, device=device) < lengths[:, None]
        assert torch.equal(back, torch.where(keep[..., None], x, 0.0))


def test_a_bucket_larger_than_the_sum_is_filled_with_zeros(device):
    lengths, x = torch.tensor([2, 1], device=device), randn(2, 3, 8, device=device)
    for impl in kernels_of("padding", device):
        packed, cu_seqlens, indices = padding.pack(x, lengths, total=5, impl=impl)
        assert (
            indices.tolist() == [0, 1, 3, -1, -1] and not packed[3:].any() and torch.equal(packed[2], x[1, 0])
        )
        assert torch.equal(padding.unpack(packed, cu_seqlens, 2, 3, impl=impl)[1, 0], x[1, 0])


def test_rows_of_any_dtype_and_stride_are_packed(device):
    lengths = torch.tensor([1, 2], device=device)
    for dtype in (torch.int64, torch.uint8, torch.float16):
        x = torch.arange(2 * 3 * 10, device=device).to(dtype).view(2, 3, 10)[..., 1:6]
        for impl in kernels_of("padding", device):
            packed, cu_seqlens, _ = padding.pack(x, lengths, impl=impl)
            assert torch.equal(packed, torch.stack([x[0, 0], x[1, 0], x[1, 1]]))
            assert torch.equal(padding.unpack(packed, cu_seqlens, 2, 3, impl=impl)[1, :2], x[1, :2])


@pytest.mark.gpu
def test_lengths_that_do_not_fit_touch_nothing_on_cuda():
    lengths, x = torch.tensor([-4, 9, 2], device="cuda"), randn(3, 3, 8, device="cuda")
    for impl in kernels_of("padding", "cuda"):
        packed, cu_seqlens, indices = padding.pack(x, lengths, total=4, impl=impl)
        assert cu_seqlens.tolist() == [0, 0, 3, 5] and indices.tolist() == [3, 4, 5, 6]
        back = padding.unpack(packed, cu_seqlens, 3, 3, impl=impl)
        assert torch.equal(back[2, 0], x[2, 0]) and not back[2, 1:].any() and torch.equal(back[1], x[1])


def _tables(device):
    return {
        n: randn(rows, 24, device=device) for n, rows in (("word", 11), ("position", 6), ("type_", 2))
    } | {"weight": randn(24, device=device), "shift": randn(24, 1, device=device)[:, 0]}


@pytest.mark.parametrize("kind", [torch.int32, torch.int64])
def test_embeddings_that_may_be_left_out(kind, device):
    t, ids = _tables(device), torch.tensor([[0, 10, 3, 3], [7, 1, 0, 2]], dtype=kind, device=device)
    places, types = torch.tensor([[5, 0, 1, 1]] * 2, dtype=kind, device=device), ids % 2
    word, position, type_ = t["word"], t["position"], t["type_"]
    cases = [
        ((places, types, position, type_), word[ids.long()] + position[places.long()] + type_[types.long()]),
        ((None, None, position, type_), word[ids.long()] + position[:4] + type_[0]),
        ((None, None, None, type_), word[ids.long()] + type_[0]),
        ((None, None, position, None), word[ids.long()] + position[:4]),
        ((None, None, None, None), word[ids.long()]),
    ]
    for impl in kernels_of("embedding_layernorm", device):
        for (position_ids, type_ids, positions, kinds), total in cases:
            found = embedding_layernorm(
                ids, position_ids, type_ids, word, positions, kinds, t["weight"], t["shift"], 1e-6, impl=impl
            )
            right = layer_norm(total, (24,), t["weight"], t["shift"], 1e-6)
            torch.testing.assert_close(found, right, rtol=1e-5, atol=1e-5)


def test_an_id_outside_its_table_is_never_read(device):
    t, ids = _tables(device), torch.tensor([3, 11, -1, 2], device=device)
    for impl in kernels_of("embedding_layernorm", device):
        operands = (ids, None, None, t["word"], t["position"], t["type_"], t["weight"], t["shift"])
        if device == "cpu":
            with pytest.raises(ValueError, match="word ids lie between 0 and 10; these go from -1 to 11"):
                embedding_layernorm(*operands, impl=impl)
        else:
            assert embedding_layernorm(*operands, impl=impl).isnan().all(-1).tolist() == [
                False,
                True,
                True,
                False,
            ]


OWN_PRODUCTS = ("v3_hopper", "v4_few_rows", "v5_sixteen_rows", "v6_whole_lines")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_weight_may_be_the_transpose_of_a_dense_one(dtype, device):
    x, stored = randn(2, 3, 16, device=device, dtype=dtype), randn(16, 24, device=device, dtype=dtype) / 4
    bias, residual = randn(24, device=device, dtype=dtype), randn(2, 3, 24, device=device, dtype=dtype)
    right = (x.double() @ stored.double() + bias.double()).to(dtype)
    for impl in kernels_of("linear", device):
        if impl in OWN_PRODUCTS:
            with pytest.raises(Unsupported, match="use v2_measured"):
                linear(x, stored.t(), bias, impl=impl)
            continue
        for weight in (stored.t(), stored.t().contiguous(), stored.repeat(1, 2)[:, :24].t()):
            torch.testing.assert_close(linear(x, weight, bias, impl=impl), right, rtol=2e-3, atol=1e-3)
        both = linear(x, stored.t(), bias, "gelu", residual, impl=impl)
        torch.testing.assert_close(both, gelu(right) + residual, rtol=2e-3, atol=3e-3)
    assert linear(x[:, :0], stored.t(), bias).shape == (2, 0, 24)


def test_nothing_of_torchs_own_product_is_recorded_for_a_gradient(device):
    """Forward only, as all operators here: torch says so on backward, instead of a gradient that leaves out
    what is ours."""
    weight = torch.nn.Parameter(randn(8, 8, device=device))
    out = linear(randn(3, 8, device=device), weight, None, "gelu")
    assert "NotImplemented" in out.grad_fn.name()


REFUSED = {
    "weight of another length": (
        ValueError,
        r"weight of shape \(8,\).*not \(7,\)",
        lambda x, v: bias_residual_layernorm(x, None, x, v[:7], v),
    ),
    "residual of another shape": (
        ValueError,
        r"residual of the shape of x, \(3, 8\); not \(2, 8\)",
        lambda x, v: bias_residual_layernorm(x, None, x[:2], v, v),
    ),
    "no weight": (
        TypeError,
        "takes weight and shift as tensors",
        lambda x, v: bias_residual_layernorm(x, None, x, None, v),
    ),
    "eps": (ValueError, "eps is at least 0, not -1", lambda x, v: bias_residual_layernorm(x, v, x, v, v, -1)),
    "dtype": (TypeError, "x is int64", lambda x, v: bias_gelu(x.long(), v)),
    "mixed dtypes": (ValueError, r"bias is torch\.float16", lambda x, v: bias_gelu(x, v.half())),
    "form of gelu": (
        ValueError,
        "approximate must be none or tanh, not 'sigmoid'",
        lambda x, v: bias_gelu(x, v, "sigmoid"),
    ),
    "a number": (ValueError, "at least one dimension", lambda x, v: bias_gelu(x[0, 0], None)),
    "heads": (ValueError, "8 elements in 3 heads and 3 of k and v", lambda x, v: split_heads(x, v, 3)),
    "four dimensions": (
        ValueError,
        r"packed \(total, width\), not",
        lambda x, v: split_heads(x[None, None], v, 2),
    ),
    "activation": (
        ValueError,
        "activation is None, 'gelu' or 'gelu_tanh', not 'relu'",
        lambda x, v: linear(x, x, None, "relu"),
    ),
    "inner sizes": (ValueError, r"not \(3, 8\) and \(3, 7\)", lambda x, v: linear(x, x[:, :7])),
    "bias of linear": (ValueError, r"bias of shape \(3,\).*not \(8,\)", lambda x, v: linear(x, x, v)),
    "residual of linear": (
        ValueError,
        r"result's shape, \(3, 3\); not \(3, 8\)",
        lambda x, v: linear(x, x, None, None, x),
    ),
    "lengths as floats": (
        TypeError,
        "lengths is an int32 or int64 tensor, not torch.float32",
        lambda x, v: padding.offsets(v, 4),
    ),
    "no lengths": (ValueError, "at least one", lambda x, v: padding.offsets(v[:0].long(), 4)),
    "lengths of others": (
        ValueError,
        "a length for each of 1 sequences",
        lambda x, v: padding.pack(x[None], v.long()),
    ),
    "offsets of others": (
        ValueError,
        r"batch \+ 1 = 4 elements, not \(8,\)",
        lambda x, v: padding.unpack(x, v.int(), 3, 4),
    ),
    "total": (
        ValueError,
        "total is a whole number from 0, not -3",
        lambda x, v: padding.offsets(0 * v.long(), 4, -3),
    ),
    "table of another width": (
        ValueError,
        r"position is \(rows, W\)",
        lambda x, v: embedding_layernorm(v.long(), None, None, x, x[:, :7], None, v, v),
    ),
    "ids as floats": (
        TypeError,
        "word_ids is an int32 or int64 tensor, not torch.float32",
        lambda x, v: embedding_layernorm(v, None, None, x, None, None, v, v),
    ),
    "ids without a table": (
        ValueError,
        "type_ids were given, but not the table",
        lambda x, v: embedding_layernorm(v.long(), None, v.long(), x, None, None, v, v),
    ),
    "too few positions": (
        ValueError,
        "a row for each of 8 tokens of a sequence, not 3",
        lambda x, v: embedding_layernorm(v.long(), None, None, x, x, None, v, v),
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_operands_that_do_not_fit(what, device):
    kind, says, call = REFUSED[what]
    with pytest.raises(kind, match=says):
        call(torch.zeros(3, 8, device=device), torch.zeros(8, device=device))


def test_lengths_that_do_not_fit_are_named_on_the_cpu():
    for lengths, total, says in (
        ([1, 7], None, "between 0 and seq, 4; not 7"),
        ([-2, 1], None, "not -2"),
        ([3, 4], 6, "the sum of the lengths, 7; not 6"),
    ):
        with pytest.raises(ValueError, match=says):
            padding.offsets(torch.tensor(lengths), 4, total)
