"""A norm with the linear layer behind it: the same as the two apart, strides, errors, what it takes."""

import pytest
import torch

from fusescope import ops
from fusescope.core.errors import Unsupported
from fusescope.ops.layer.bias_residual_layernorm import bias_residual_layernorm
from fusescope.ops.layer.linear import linear
from fusescope.ops.layer.norm_linear import FEW_ROWS, norm_linear, suits
from fusescope.ops.layer.rmsnorm_residual import rmsnorm_residual


def _given(d, dtype=torch.float32, rows=3, inputs=72, outputs=40):
    g = torch.Generator().manual_seed(5)
    drawn = [torch.randn(*s, generator=g) for s in ((rows, inputs), (inputs,), (inputs,), (outputs, inputs))]
    drawn[3] /= inputs**0.5
    return [t.to(dtype).to(d) for t in (*drawn, torch.randn(outputs, generator=g))]


@pytest.mark.parametrize("shifts", [True, False])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("rows", [1, 2, 3, 8, 9, FEW_ROWS])
def test_is_the_norm_then_the_product(shifts, dtype, rows, device):
    """The normed row is rounded as a kernel of its own rounds it, so the two agree to the last bits of a sum
    in another order and a norm's last bit."""
    if device != "cpu" and torch.cuda.get_device_capability(device) != (9, 0):
        pytest.skip("v1_sixteen_rows is for compute capability 9.0")
    x, scale, shift, weight, bias = _given(device, dtype, rows, 768, 264)
    for activation in (None, "gelu", "gelu_tanh"):
        out = norm_linear(x, scale, shift if shifts else None, weight, bias, activation)
        if shifts:
            normed = bias_residual_layernorm(x, None, None, scale, shift, 1e-5)
        else:
            normed = rmsnorm_residual(x, scale, eps=1e-5)[0]
        apart = linear(normed, weight, bias, activation)
        unit = torch.finfo(dtype).eps
        torch.testing.assert_close(out, apart, rtol=2 * unit, atol=4 * unit)


def test_slices_of_rows_and_several_dimensions():
    x, scale, shift, weight, bias = _given("cpu")
    right = linear(bias_residual_layernorm(x, None, None, scale, shift, 1e-5), weight, bias)
    wide = torch.zeros(40, 80)
    wide[:, 3:75] = weight
    out = norm_linear(x.view(3, 1, 72), scale, shift, wide[:, 3:75], bias, settled=True)
    torch.testing.assert_close(out.view(3, 40), right, rtol=1e-5, atol=1e-5)
    assert norm_linear(x[:0], scale, shift, weight, bias).shape == (0, 40)
    column = torch.stack([scale, scale], 1)[:, 0]
    torch.testing.assert_close(norm_linear(x, column, shift, weight, bias), right, rtol=1e-5, atol=1e-5)


def test_a_mean_far_from_zero_is_taken_off_exactly(device):
    if device != "cpu" and torch.cuda.get_device_capability(device) != (9, 0):
        pytest.skip("v1_sixteen_rows is for compute capability 9.0")
    x, scale, shift, weight, bias = _given(device, torch.float16, 2, 1024, 64)
    x = x + 200
    out = norm_linear(x, scale, shift, weight, bias).double()
    normed = torch.nn.functional.layer_norm(x.double(), (1024,), scale.double(), shift.double(), 1e-5)
    right = torch.nn.functional.linear(normed, weight.double(), bias.double())
    assert float((out - right).abs().max()) < 20 * torch.finfo(torch.float16).eps


def test_what_does_not_fit_is_refused():
    x, scale, shift, weight, bias = _given("cpu")
    for given, error in (
        ((x, scale[:-1], shift, weight, bias), ValueError),
        ((x, scale, shift[:-1], weight, bias), ValueError),
        ((x, scale, shift, weight[:, :-1], bias), ValueError),
        ((x, scale, shift, weight, bias[:-1]), ValueError),
        ((x, scale.half(), shift, weight, bias), ValueError),
        ((x.int(), scale, shift, weight, bias), TypeError),
        ((x, scale, shift, weight, bias, "relu"), ValueError),
        ((x, scale, shift, weight, bias, None, -1.0), ValueError),
    ):
        with pytest.raises(error):
            norm_linear(*given)


@pytest.mark.gpu
def test_what_suits_is_taken_and_what_does_not_is_refused():
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("v1_sixteen_rows is for compute capability 9.0")
    for rows, inputs, dtype in (
        (1, 768, torch.float16),
        (16, 2048, torch.bfloat16),
        (8, 4096, torch.float16),
        (16, 4096, torch.float16),
        (17, 768, torch.float16),
        (1, 772, torch.float16),
        (1, 768, torch.float32),
    ):
        x, scale, shift, weight, bias = _given("cuda", dtype, rows, inputs, 64)
        if suits(x, weight):
            norm_linear(x, scale, shift, weight, bias)
            continue
        with pytest.raises(Unsupported):
            norm_linear(x, scale, shift, weight, bias)


def test_bytes_are_each_operand_once():
    module = ops.load("norm_linear")
    for norm in ("layernorm", "rmsnorm"):
        values = module.validate({"rows": 2, "inputs": 32, "outputs": 24, "norm": norm})
        given = module.inputs(values, "float16", "cpu", 0)
        read = sum(t.numel() * t.element_size() for t in given.values() if isinstance(t, torch.Tensor))
        assert module.cost(values, "float16").bytes_read == read
