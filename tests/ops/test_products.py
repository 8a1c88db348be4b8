"""gemm and bmm as functions: shapes of torch.matmul, strides taken without copies, exact errors for operands
that do not fit."""

import pytest
import torch

from fusescope.core.errors import Unsupported
from fusescope.ops.dense.bmm import batch_shape, bmm, broadcast
from fusescope.ops.dense.gemm import gemm

SHAPES = [
    ((2, 3, 4, 5), (5, 6)),
    ((4, 5), (2, 3, 5, 6)),
    ((2, 1, 4, 5), (3, 5, 6)),
    ((5,), (2, 5, 6)),
    ((2, 4, 5), (5,)),
    ((5,), (5,)),
    ((5,), (5, 6)),
    ((4, 5), (5,)),
    ((3, 1, 4, 5), (1, 7, 5, 2)),
    ((2, 1, 2, 1, 3, 4), (1, 2, 1, 2, 4, 3)),
    ((6, 1, 5), (5, 7)),
    ((6, 1, 5), (6, 5, 7)),
    ((1, 1, 1), (1, 1, 1)),
    ((0, 3, 4), (4, 2)),
    ((2, 3, 0), (2, 0, 5)),
    ((2, 0, 4), (2, 4, 5)),
]


@pytest.mark.parametrize(("left", "right"), SHAPES)
def test_bmm_has_the_shapes_and_values_of_matmul(left, right, device):
    a, b = torch.randn(left, device=device), torch.randn(right, device=device)
    torch.testing.assert_close(bmm(a, b), a @ b)


@pytest.mark.parametrize(
    "view",
    [
        lambda t: t.transpose(-1, -2).contiguous().transpose(-1, -2),
        lambda t: torch.cat([t, t], -1)[..., 3 : 3 + t.shape[-1]],
        lambda t: torch.stack([t, t], -1)[..., 1],
        lambda t: t[..., :1].expand(t.shape),
        lambda t: t[..., :1, :].expand(t.shape),
        lambda t: t.flip(-1),
    ],
    ids=["transposed", "columns of a wider one", "every second element", "one column", "one row", "flipped"],
)
@pytest.mark.parametrize("shape", [(40, 24), (3, 40, 24), (2, 3, 7, 9)])
def test_views_of_every_kind(view, shape, device):
    a = view(torch.randn(shape, device=device))
    b = view(torch.randn((*shape[:-2], shape[-1], 33), device=device))
    torch.testing.assert_close(bmm(a, b), a @ b, rtol=1e-4, atol=1e-4)
    if len(shape) == 2:
        torch.testing.assert_close(gemm(a, b), a @ b, rtol=1e-4, atol=1e-4)


def test_batch_dimensions_in_any_memory_order(device):
    a = torch.randn(4, 6, 3, 5, device=device).permute(1, 0, 2, 3)
    b = torch.randn(6, 5, 2, 4, device=device).permute(0, 3, 1, 2)
    torch.testing.assert_close(bmm(a, b), a @ b)
    c = torch.randn(6, 4, 5, 1, device=device)[:, 0:1]
    torch.testing.assert_close(bmm(a, c), a @ c)


def test_one_matrix_for_all_becomes_more_rows_only_where_rows_go_on_evenly(device):
    b = torch.randn(5, 7, device=device)
    for a in (
        torch.randn(6, 3, 5, device=device),
        torch.randn(6, 3, 10, device=device)[..., ::2],
        torch.randn(6, 1, 5, device=device),
        torch.randn(12, 1, 5, device=device)[::2],
        torch.randn(6, 5, 3, device=device).transpose(1, 2),
        torch.randn(5, 6, device=device).t().unsqueeze(1),
        torch.randn(6, 3, 1, device=device).expand(6, 3, 5),
    ):
        torch.testing.assert_close(bmm(a, b), a @ b)


def test_sums_over_nothing_are_zero(device):
    out = gemm(torch.empty(3, 0, device=device), torch.empty(0, 4, device=device))
    assert out.shape == (3, 4) and not out.any()


def test_infinities_do_not_leak_through_tile_tails(device):
    """Elements that pad a tile are zero in both operands; 0 times an infinity of a neighbour would be NaN."""
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        a, b = torch.ones(33, 17, device=device, dtype=dtype), torch.ones(17, 35, device=device, dtype=dtype)
        a[5, 3] = torch.inf
        out = gemm(a, b)
        assert out[5].isinf().all()
        assert (torch.cat([out[:5], out[6:]]) == 17).all()


def test_operands_that_do_not_fit(device):
    a, b = torch.randn(3, 4, device=device), torch.randn(4, 5, device=device)
    with pytest.raises(ValueError, match=r"\(m, k\) and \(k, n\), not \(3, 4\) and \(3, 4\)"):
        gemm(a, a)
    with pytest.raises(ValueError, match="bmm takes batches"):
        gemm(a[None], b)
    with pytest.raises(ValueError, match="one dtype and device"):
        gemm(a, b.half())
    with pytest.raises(TypeError, match="float64"):
        gemm(a.double(), b.double())
    with pytest.raises(TypeError, match="b is list"):
        gemm(a, [[1.0]])
    with pytest.raises(ValueError, match=r"\(\.\.\., m, k\)"):
        bmm(a, a)
    with pytest.raises(ValueError, match=r"equal or 1.*\(2,\) and \(3,\)"):
        bmm(torch.randn(2, 3, 4, device=device), torch.randn(3, 4, 5, device=device))
    with pytest.raises(ValueError, match=r"\(\) and"):
        bmm(torch.randn((), device=device), b)


def test_many_batch_dimensions_that_do_not_merge_are_refused_with_the_limit():
    a, b = torch.randn(*(2, 1) * 9, 1, 1), torch.randn(*(1, 2) * 9, 1, 1)
    with pytest.raises(Unsupported, match="16 batch dimensions"):
        bmm(a, b)


@pytest.mark.gpu
def test_the_tensor_core_kernels_say_what_takes_fp32():
    a = torch.randn(8, 8, device="cuda")
    with pytest.raises(Unsupported, match="use v2_tiled"):
        gemm(a, a, impl="v3_tensor_core")
    with pytest.raises(Unsupported, match="use v1_tiled"):
        bmm(a, a, impl="v2_tensor_core")


def test_batch_shapes_are_read_and_broadcast():
    assert batch_shape("2x3") == (2, 3) and batch_shape("none") == () and batch_shape(8) == (8,)
    assert broadcast((2, 1), (3,)) == (2, 3)
    for wrong in ("2x", "x3", "-1", "0", "2 3", "a"):
        with pytest.raises(ValueError, match="joined by x"):
            batch_shape(wrong)
