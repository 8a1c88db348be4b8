"""linear_swiglu: SwiGLU of a product, in its launch where a kernel makes it."""

import pytest
import torch

from fusescope.core.errors import Unsupported
from fusescope.ops.common import algorithms
from fusescope.ops.layer import linear as module
from fusescope.ops.layer.linear import linear, linear_swiglu
from fusescope.ops.layer.swiglu import swiglu

KERNEL = "v6_whole_lines"
SIZES = ((1, 64, 48), (3, 1096, 80), (8, 768, 4240), (13, 520, 4272), (16, 64, 16))


def operands(rows, terms, outputs, device="cpu", dtype=torch.float16, bias=True):
    torch.manual_seed(rows)
    weight = torch.randn(outputs, terms, device=device) / terms**0.5
    shift = torch.randn(outputs, device=device).to(dtype) if bias else None
    return torch.randn(rows, terms, device=device).to(dtype), weight.to(dtype), shift


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_by_itself_it_is_the_two_calls(dtype):
    for rows, terms, outputs in SIZES:
        x, weight, bias = operands(rows, terms, outputs, dtype=dtype)
        assert torch.equal(linear_swiglu(x, weight, bias), swiglu(linear(x, weight, bias)))
        batched = linear_swiglu(x[None, :, None], weight)
        assert batched.shape == (1, rows, 1, outputs // 2)
        assert torch.equal(batched[0, :, 0], swiglu(linear(x, weight)))
    assert linear_swiglu(x[:0], weight).shape == (0, outputs // 2)


def test_operands_that_do_not_fit_are_refused():
    x, weight, bias = operands(2, 16, 24)
    with pytest.raises(ValueError, match="a weight of gate and up, 2 F rows; not 23"):
        linear_swiglu(x, weight[:23])
    with pytest.raises(ValueError, match=r"linear_swiglu takes bias of shape \(24,\)"):
        linear_swiglu(x, weight, bias[:12])
    with pytest.raises(ValueError, match=r"linear_swiglu takes x \(..., K\) and weight \(N, K\)"):
        linear_swiglu(x[:, :8], weight)
    with pytest.raises(ValueError, match="takes tensors of one dtype"):
        linear_swiglu(x, weight.float())
    for impl in ("cpu", KERNEL):
        with pytest.raises((Unsupported, ValueError)):
            linear_swiglu(x, weight, impl=impl)


class OnAGpu:
    """A CPU tensor that says it is on a GPU."""

    def __init__(self, tensor):
        self.t, self.device = tensor, torch.device("cuda", 0)

    def __getattr__(self, name):
        return getattr(self.t, name)


@pytest.mark.parametrize(
    "change, one",
    (
        ({}, True),
        ({"rows": 9}, False),
        ({"dtype": torch.float32}, False),
        ({"terms": 60}, False),
        ({"outputs": 44}, False),
        ({"own": ("v5_sixteen_rows",)}, False),
        ({"transposed": True}, False),
    ),
)
def test_one_launch_where_a_kernel_takes_it_and_rows_are_few(monkeypatch, change, one):
    given = {"rows": 8, "terms": 64, "outputs": 48, "dtype": torch.float16} | change
    transposed, own = given.pop("transposed", False), given.pop("own", ("v5_sixteen_rows", KERNEL))
    monkeypatch.setattr(algorithms, "own_products", lambda index: own)
    x, weight, _ = operands(**given)
    if transposed:
        weight = weight.t().contiguous().t()
    assert module._in_one_launch(OnAGpu(x), OnAGpu(weight), None) is one
    chosen = []  # and a product on settled weights is measured nowhere else
    monkeypatch.setattr(algorithms, "ensure", lambda *operands: chosen.append("measured"))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    for settled in (True, False):
        chosen.append(algorithms.choose(OnAGpu(x), OnAGpu(weight), None, None, 0, settled))
    measured = ["measured", "v2_measured"]
    assert chosen == ([KERNEL] if one else measured) + measured


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_one_launch_has_the_bits_of_two(dtype):
    for rows, terms, outputs in SIZES:
        for bias in (True, False):
            given = operands(rows, terms, outputs, "cuda", dtype, bias)
            for settled in (False, True):
                one = linear_swiglu(*given, settled=settled, impl=KERNEL)
                assert torch.equal(one, swiglu(linear(*given, impl=KERNEL)))
    for impl in ("v2_measured", "v3_hopper", "v5_sixteen_rows"):
        with pytest.raises(Unsupported, match="SwiGLU in the product's launch"):
            linear_swiglu(*given, impl=impl)
    with pytest.raises(Unsupported, match="more than 16 rows"):
        linear_swiglu(*operands(17, 64, 48, "cuda", dtype), impl=KERNEL)
