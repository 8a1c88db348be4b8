"""The linear layer with 8-bit weights: all numbers of both formats, its bytes, strides, errors, torch."""

import pytest
import torch
from weight_only_tools import every_weight_is_wrong

from fusescope import kernels, ops
from fusescope.core.errors import Unsupported
from fusescope.ops.layer.linear_weight_only import linear_weight_only

SMALL = {"rows": 2, "inputs": 32, "outputs": 24}


def _given(d, kind=torch.int8, rows=2):
    g = torch.Generator().manual_seed(3)
    x = torch.randn(rows, 32, generator=g).to(d)
    weight = torch.randint(-100, 100, (24, 32), generator=g).float().to(kind).to(d)
    return x, weight, torch.rand(24, generator=g).to(d) / 100


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_every_number_of_either_format_comes_through(dtype, device):
    assert every_weight_is_wrong("cpu" if device == "cpu" else "v2_dot", dtype, device) is None


@pytest.mark.gpu
@pytest.mark.parametrize("impl", ["v1_warp_output", "v2_dot", "v3_tensor_core", "v4_whole_lines"])
def test_every_number_in_every_kernel(impl):
    assert every_weight_is_wrong(impl, "float16", "cuda:0") is None
    assert every_weight_is_wrong(impl, "bfloat16", "cuda:0") is None


def test_slices_of_rows_and_columns_and_several_dimensions(device):
    x, weight, scales = _given(device)
    right = x.double() @ (weight.double() * scales.double()[:, None]).t()
    wide = torch.zeros(24, 40, dtype=torch.int8, device=device)
    wide[:, 5:37] = weight
    for given in (wide[:, 5:37], weight.t().contiguous().t()):
        out = linear_weight_only(x.view(2, 1, 32), given, scales, settled=True)
        torch.testing.assert_close(out.view(2, 24).double(), right, rtol=1e-5, atol=1e-4)
    assert linear_weight_only(x[:0], weight, scales).shape == (0, 24)


@pytest.mark.parametrize("weight", ["int8", "fp8"])
def test_bytes_are_each_operand_once(weight):
    module = ops.load("linear_weight_only")
    values = module.validate(SMALL | {"weight": weight, "residual": "yes"})
    given = module.inputs(values, "float16", "cpu", 0)
    read = sum(t.numel() * t.element_size() for t in given.values() if isinstance(t, torch.Tensor))
    assert module.cost(values, "float16").bytes_read == read
    assert given["weight"].element_size() == 1


def test_peers_agree_or_refuse_by_name():
    module = ops.load("linear_weight_only")
    for weight in ("int8", "fp8"):
        given = module.inputs(module.validate(SMALL | {"weight": weight}), "bfloat16", "cpu", 0)
        right, allowed = module.reference(given), module.tolerance(module.validate(SMALL), "bfloat16")
        for name in ("eager", "dequantised", "int8pack"):
            try:
                out = ops.make("linear_weight_only", name, given)().double()
            except Unsupported as refusal:
                assert name == "int8pack" and "int8" in str(refusal)
                continue
            assert bool(((out - right).abs() <= allowed.absolute + allowed.relative * right.abs()).all())
    with pytest.raises(Unsupported, match="choose weight=int8"):
        ops.make("linear_weight_only", "int8pack", given)


def test_opcheck(device):
    kernels.load(device, ("linear_weight_only",))
    impl = kernels.choose("linear_weight_only", device) if device == "cpu" else "v2_dot"
    operator = torch.ops.fusescope.linear_weight_only.default
    torch.library.opcheck(operator, (*_given(device), None, None, 1, True, impl))


def test_operands_that_do_not_fit_are_named(device):
    x, weight, scales = _given(device)
    for given, error, says in (
        ((x, weight.float(), scales), TypeError, "int8 or float8_e4m3fn, not torch.float32"),
        ((x[:, 1:], weight, scales), ValueError, "(2, 31) and (24, 32)"),
        ((x, weight, scales[1:]), ValueError, "float32 scales of shape (24,)"),
        ((x, weight, scales.half()), ValueError, "not torch.float16"),
        ((x, weight, scales, scales[1:]), ValueError, "bias of shape (24,)"),
        ((x, weight, scales, None, None, x), ValueError, "residual of the result's shape, (2, 24)"),
        ((x, weight, scales, None, "relu"), ValueError, "not 'relu'"),
    ):
        with pytest.raises(error) as raised:
            linear_weight_only(*given)
        assert says in str(raised.value)
