"""softmax and layernorm as functions: non-finite values, means far from zero, any shape and stride, exact
errors."""

import pytest
import torch

from fusescope import ops
from fusescope.ops.dense.layernorm import layernorm
from fusescope.ops.dense.softmax import softmax

INF, NAN = float("inf"), float("nan")


def kernels_of(op, device):
    return [i.name for i in ops.implementations(op, device) if i.kind == "ours" and device in i.devices]


@pytest.mark.parametrize("cols", [4, 100, 1500, 40_000])
def test_softmax_of_infinities_and_nan_is_that_of_torch(cols, device):
    x = torch.randn(6, cols, device=device)
    x[0] = -INF
    x[1, :-1] = -INF
    x[2, : cols // 2] = -INF
    x[3, 1] = INF
    x[4, 2] = NAN
    for impl in kernels_of("softmax", device):
        torch.testing.assert_close(
            softmax(x, impl=impl), torch.softmax(x, -1), equal_nan=True, rtol=1e-4, atol=1e-7
        )


def test_softmax_of_large_values_does_not_overflow(device):
    for value in (3e38, -3e38, 60_000.0):
        x = torch.full((2, 70), value, device=device)
        for impl in kernels_of("softmax", device):
            torch.testing.assert_close(softmax(x, impl=impl), torch.full_like(x, 1 / 70))


@pytest.mark.parametrize("cols", [2, 768, 5000, 40_000])
@pytest.mark.parametrize("mean", [1e4, -3e5])
def test_layernorm_keeps_its_accuracy_far_from_zero(mean, cols, device):
    generator = torch.Generator().manual_seed(0)
    x = (torch.randn(5, cols, generator=generator) + mean).to(device)
    right = torch.nn.functional.layer_norm(x.double(), (cols,), None, None, 1e-5)
    for impl in kernels_of("layernorm", device):
        assert (layernorm(x, impl=impl) - right).abs().max() < 2e-4, impl


def test_layernorm_with_an_outlier_in_front(device):
    x = torch.randn(3, 1000, generator=torch.Generator().manual_seed(0)).to(device)
    x[:, 0] = 1e6
    right = torch.nn.functional.layer_norm(x.double(), (1000,), None, None, 1e-5)
    for impl in kernels_of("layernorm", device):
        assert (layernorm(x, impl=impl) - right).abs().max() < 1e-4, impl


def test_constant_rows_become_the_bias(device):
    x, bias = torch.full((4, 33), 7.25, device=device), torch.randn(33, device=device)
    for impl in kernels_of("layernorm", device):
        torch.testing.assert_close(layernorm(x, None, bias, impl=impl), bias.expand(4, 33))


@pytest.mark.parametrize("given", [(True, True), (True, False), (False, True), (False, False)])
def test_weight_and_bias_may_be_left_out(given, device):
    x = torch.randn(7, 65, device=device)
    weight, bias = (torch.randn(65, device=device) if g else None for g in given)
    for impl in kernels_of("layernorm", device):
        torch.testing.assert_close(
            layernorm(x, weight, bias, 1e-3, impl=impl),
            torch.nn.functional.layer_norm(x, (65,), weight, bias, 1e-3),
        )


@pytest.mark.parametrize(
    "view",
    [
        lambda t: t,
        lambda t: t[1:],
        lambda t: t[..., 1:],
        lambda t: t[..., ::2],
        lambda t: t.transpose(0, -1),
        lambda t: t[:1].expand(5, *t.shape[1:]),
        lambda t: t[::2],
        lambda t: t.reshape(-1),
        lambda t: t[:0],
        lambda t: t.unsqueeze(1),
    ],
    ids=["dense", "offset", "columns", "gaps", "turned", "expanded", "rows", "vector", "empty", "size one"],
)
@pytest.mark.parametrize("shape", [(6, 40), (4, 3, 40), (2, 3, 4, 8)])
def test_views_and_shapes(shape, view, device):
    x = view(torch.randn(shape, device=device))
    torch.testing.assert_close(softmax(x), torch.softmax(x, -1))
    # In float64: of two nearly equal columns PyTorch's own fp32 result is off by up to 4e-5.
    right = torch.nn.functional.layer_norm(x.double(), x.shape[-1:])
    torch.testing.assert_close(layernorm(x).double(), right, rtol=1e-6, atol=1e-6)


def test_operands_that_do_not_fit(device):
    x = torch.randn(3, 8, device=device)
    with pytest.raises(ValueError, match="at least one dimension"):
        softmax(torch.tensor(1.0, device=device))
    with pytest.raises(TypeError, match="int64"):
        softmax(torch.arange(4, device=device))
    with pytest.raises(TypeError, match="x is float"):
        softmax(1.0)
    with pytest.raises(ValueError, match=r"weight of shape \(8,\).*not \(7,\)"):
        layernorm(x, torch.ones(7, device=device))
    with pytest.raises(ValueError, match=r"bias is torch\.float16"):
        layernorm(x, None, torch.zeros(8, device=device, dtype=torch.float16))
    with pytest.raises(ValueError, match="eps is at least 0, not -1"):
        layernorm(x, eps=-1)
    with pytest.raises(ValueError, match="eps is at least 0, not nan"):
        layernorm(x, eps=NAN)
