"""SDDMM and SpMM beyond what every operator is tried on: structures, empty and full ones, what is refused,
peers."""

import numpy as np
import pytest
import scipy.sparse
import torch

from fusescope import kernels, masks, ops
from fusescope.core.errors import Unsupported
from fusescope.masks.sparse import to_bsr
from fusescope.measure.checking.check import Case
from fusescope.ops.common import sparse, structure
from fusescope.ops.sparse.sddmm import prepare, sddmm
from fusescope.ops.sparse.sparse_softmax import sparse_softmax
from fusescope.ops.sparse.spmm import spmm

OPS = ("sddmm", "spmm")


def structure_of(seq_q, seq_k, density, device="cpu"):
    keep = torch.rand(seq_q, seq_k, generator=torch.Generator().manual_seed(3)) < density
    return prepare(keep.to(device), seq_q, seq_k, device), keep.to(device)


@pytest.mark.parametrize(
    ("seq_q", "seq_k", "density"), [(1, 1, 1.0), (1, 1, 0.0), (7, 1000, 0.3), (600, 600, 0.9), (33, 5, 0.02)]
)
def test_a_structure_is_the_csr_of_its_mask(seq_q, seq_k, density):
    s, keep = structure_of(seq_q, seq_k, density)
    other = scipy.sparse.csr_array(keep.numpy())
    assert np.array_equal(s.row_offsets, other.indptr) and np.array_equal(s.columns, other.indices)
    assert np.array_equal(s.row_of, np.repeat(np.arange(seq_q), np.diff(other.indptr)))
    assert torch.equal(s.dense(torch.ones(s.entries)), keep.float())
    assert torch.equal(s.tensor(torch.ones(s.entries)).to_dense(), keep.float())
    lengths = keep.sum(1)[s.order.long()]
    assert sorted(s.order.tolist()) == list(range(seq_q)), "every row once"
    assert (lengths[: s.long_rows] > structure.LONG).all() and (
        lengths[s.long_rows :] <= structure.LONG
    ).all()
    assert (lengths[:-1] * 2 >= lengths[1:]).all(), "in classes of falling length"
    assert s.density == keep.numpy().mean() and s.entries == int(keep.sum())


@pytest.mark.parametrize("block", [16, 32, 64])
@pytest.mark.parametrize(
    ("seq_q", "seq_k", "density"), [(1, 1, 1.0), (7, 100, 0.01), (130, 65, 0.3), (100, 200, 0.0)]
)
def test_blocks_are_those_of_the_mask(seq_q, seq_k, density, block):
    keep = torch.rand(seq_q, seq_k, generator=torch.Generator().manual_seed(3)) < density
    s, other = prepare(keep, seq_q, seq_k, block=block), to_bsr(keep.numpy(), block)
    assert np.array_equal(s.row_offsets, other.offsets) and np.array_equal(s.columns, other.columns)
    assert (
        np.array_equal(s.keep(), other.blocks)
        and s.value_shape == other.blocks.shape
        and s.kept == int(keep.sum())
    )
    values = (torch.rand(2, *s.value_shape) + 0.5) * s.keep()  # none of the kept is 0
    dense = s.dense(values)
    assert dense.shape == (2, seq_q, seq_k) and torch.equal(dense != 0, keep.expand(2, -1, -1))
    assert torch.equal(s.dense(values[0], 0, 1), dense[0, :block])
    rows, columns = keep.nonzero(as_tuple=True)
    assert torch.equal(torch.sort(dense[0, rows, columns])[0], torch.sort(values[0][s.keep()])[0])
    with pytest.raises(ValueError, match="block is 0"):
        prepare(keep, seq_q, seq_k, block=8)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("form", ["bsr16", "bsr32", "bsr64"])
@pytest.mark.parametrize("op", OPS)
def test_block_formats(op, form, dtype, device):
    module = ops.load(op)
    for sizes in ({"seq": 37, "seq_k": 150}, {"seq": 128, "seq_k": 64}, {"seq": 1}):
        values = module.validate(
            {"batch": 2, "heads": 2, "head_dim": 24, "mask": "random:density=0.01", "format": form} | sizes
        )
        for contiguous in (True, False):
            case = Case(module, values, dtype, device, seed=1, contiguous=contiguous)
            for impl in ("eager", "auto"):
                assert case.verify(ops.make(op, impl, case.inputs)).reason is None, (impl, sizes)
            cost, floats = (
                module.cost(values, dtype),
                [t for t in case.inputs.values() if isinstance(t, torch.Tensor)],
            )
            assert cost.bytes_read == sum(t.numel() * t.element_size() for t in floats)
            assert cost.bytes_written == case.reference.numel() * floats[0].element_size()
    sizes = {"seq": 128, "seq_k": 64, "head_dim": 16, "mask": "causal", "format": form}
    case = Case(module, module.validate(sizes), "float32", device, seed=1)
    if op == "spmm":
        assert case.verify(ops.make(op, "sparse", case.inputs)).reason is None
    else:
        with pytest.raises(Unsupported, match="BSR"):
            ops.make(op, "sparse", case.inputs)


def test_a_mask_and_its_dense_matrix_give_the_same_structure():
    mask = masks.load("bigbird", window=3, global_tokens=2, block=16)
    a = prepare(mask, 70, 130)
    b = prepare(torch.from_numpy(mask.dense(70, 130)), 70, 130)
    for name in ("row_offsets", "columns", "row_of", "order"):
        assert torch.equal(getattr(a, name), getattr(b, name))
    assert prepare(mask, 70, 130) is a, "made once"
    assert sparse.counts(str(mask), 70, 130, "csr").kept == a.entries
    assert sparse.counts(str(mask), 70, 130, "csr").longest == int(
        (a.row_offsets[1:] - a.row_offsets[:-1]).max()
    )


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize(
    "mask", ["random:density=0.0", "random:density=0.01", "full", "longformer:window=1,global_tokens=1"]
)
def test_empty_rows_empty_and_full_matrices(op, dtype, mask, device):
    module = ops.load(op)
    values = module.validate({"batch": 2, "heads": 2, "seq": 37, "seq_k": 600, "head_dim": 24, "mask": mask})
    case = Case(module, values, dtype, device, seed=1)
    for impl in [
        i.name
        for i in ops.implementations(op, device)
        if i.kind == "ours" and i.reason is None and "blocks" not in i.name
    ]:
        assert case.verify(ops.make(op, impl, case.inputs)).reason is None, impl


def test_any_number_of_leading_dimensions_and_layouts(device):
    s, keep = structure_of(20, 30, 0.3, device)
    wide = torch.randn(2, 20, 3, 2, 16, device=device).permute(
        0, 2, 3, 1, 4
    )  # (2, 3, 2, S, D) as a projection leaves it
    keys = torch.randn(2, 3, 2, 30, 16, device=device)
    rows, columns = keep.nonzero(as_tuple=True)
    for q, k in ((wide, keys), (wide[0], keys[0]), (wide[0, 0], keys[0, 0]), (wide[0, 0, 0], keys[0, 0, 0])):
        found = sddmm(q, k, s)
        torch.testing.assert_close(found, (q @ k.transpose(-1, -2))[..., rows, columns], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(spmm(s, found, k), s.dense(found) @ k, rtol=1e-4, atol=1e-4)
    none = sddmm(wide[:0], keys[:0], s)
    assert none.shape == (0, 3, 2, s.entries) and spmm(s, none, keys[:0]).shape == (0, 3, 2, 20, 16)


def test_infinities_stay_in_their_rows(device):
    """A kernel that reads beyond a row and multiplies by zero would spread them."""
    s, keep = structure_of(9, 40, 0.3, device)
    v = torch.randn(40, 64, device=device)
    v[7] = float("inf")
    values = torch.rand(s.entries, device=device) + 0.1
    touched = keep[:, 7]
    for impl in [
        i.name
        for i in ops.implementations("spmm", device)
        if i.kind == "ours" and i.reason is None and "blocks" not in i.name
    ]:
        out = spmm(s, values, v, impl=impl)
        assert out[touched].isinf().all() and out[~touched].isfinite().all()


@pytest.mark.parametrize("op", OPS)
def test_the_sparse_peer_is_right_in_fp32_and_refuses_what_torch_does(op, device):
    module = ops.load(op)
    values = module.validate(
        {"batch": 1, "heads": 2, "seq": 50, "seq_k": 70, "head_dim": 16, "mask": "random:density=0.2"}
    )
    case = Case(module, values, "float32", device, seed=1)
    assert case.verify(ops.make(op, "sparse", case.inputs)).reason is None
    if device == "cpu":
        with pytest.raises(Unsupported, match=r"torch.*float16.*cpu"):
            ops.make(op, "sparse", module.inputs(values, "float16", "cpu", seed=0))


@pytest.mark.slow
@pytest.mark.parametrize("op", OPS)
def test_opcheck_and_compile(op, device):
    """Inductor's C++ for the CPU is the subject of test_layer_citizens."""
    how = {"fullgraph": True, "backend": "aot_eager" if device == "cpu" else "inductor"}
    module = ops.load(op)
    kernels.load(device)
    given = module.inputs(
        module.validate({"heads": 2, "seq": 12, "head_dim": 8, "mask": "causal"}), "float32", device, 0
    )
    s, impl = given["structure"], ops.auto(op, given)
    if op == "sddmm":
        args = (given["q"], given["k"], s.row_offsets, s.columns, s.row_of, s.bits, s.block)
        compiled = torch.compile(lambda q, k: sddmm(q, k, s, impl=impl) * 2, **how)(given["q"], given["k"])
    else:
        args = (given["values"], given["v"], s.row_offsets, s.columns, s.order, s.long_rows, s.seq_q, s.block)
        compiled = torch.compile(lambda p, v: spmm(s, p, v, impl=impl) * 2, **how)(
            given["values"], given["v"]
        )
    torch.library.opcheck(getattr(torch.ops.fusescope, op).default, (*args, impl))
    torch.testing.assert_close(compiled, module.call(given, impl) * 2)


def test_softmax_by_rows(device):
    s, keep = structure_of(30, 50, 0.3, device)
    x = torch.randn(2, 3, 30, 50, device=device)
    rows, columns = keep.nonzero(as_tuple=True)
    out = sparse_softmax(s, x[..., rows, columns], scale=0.25)
    right = torch.softmax((x * 0.25).masked_fill(~keep, float("-inf")), -1)[..., rows, columns]
    torch.testing.assert_close(out, right)
    empty, _ = structure_of(5, 6, 0.0, device)
    assert sparse_softmax(empty, torch.randn(2, 0, device=device)).shape == (2, 0)
    torch.library.opcheck(
        torch.ops.fusescope.sparse_softmax.default,
        (x[0, 0, rows, columns], s.row_offsets, s.order, 0.5, ops.auto("sparse_softmax", {"x": x})),
    )
    blocks = prepare(keep, 30, 50, device, block=16)
    with pytest.raises(ValueError, match="BSR blocks of 16"):
        sparse_softmax(blocks, torch.randn(*blocks.value_shape, device=device))
    with pytest.raises(ValueError, match=r"takes values \(\.\.\., nnz\)"):
        sparse_softmax(s, torch.randn(3, device=device))


def test_attention_composed_of_the_three_is_attention(device):
    module = ops.load("attention")
    for values in (
        {"batch": 2, "heads": 4, "kv_heads": 2, "seq": 33, "seq_k": 70, "head_dim": 32, "mask": "causal"},
        {
            "heads": 2,
            "seq": 40,
            "head_dim": 64,
            "mask": "random:density=0.02",
            "bias": "head",
        },  # rows without a key
        {"heads": 2, "seq": 20, "head_dim": 32, "mask": "full"},
    ):
        for dtype in module.DTYPES:
            case = Case(module, module.validate(values), dtype, device, seed=1, contiguous=dtype == "float32")
            assert case.verify(ops.make("attention", "composed", case.inputs)).reason is None, (values, dtype)
    differing = module.validate({"batch": 2, "seq": 9, "mask": "padding:lengths=3+4"})
    with pytest.raises(Unsupported, match="one structure"):
        ops.make("attention", "composed", module.inputs(differing, "float32", device, 0))


def test_what_does_not_fit_is_refused_by_name():
    s, _ = structure_of(5, 6, 0.5)
    q, k, values = torch.randn(5, 8), torch.randn(6, 8), torch.randn(s.entries)
    for bad in ((k, q, s), (q, k[:, :4], s), (q[None], k, s)):
        with pytest.raises(ValueError, match=r"structure is|sddmm takes"):
            sddmm(*bad)
    for bad in ((s, values[1:], k), (s, values, q), (s, values[None], k)):
        with pytest.raises(ValueError, match=r"structure keeps|spmm takes"):
            spmm(*bad)
    with pytest.raises(TypeError, match="prepare"):
        sddmm(q, k, torch.ones(5, 6, dtype=torch.bool))
    with pytest.raises(Unsupported, match="forward only"):
        sddmm(q.requires_grad_(), k, s)
    with pytest.raises(TypeError, match="float64"):
        spmm(s, values.double(), k.double())
    with pytest.raises(TypeError, match="Mask or a bool tensor"):
        prepare("causal", 5)
    with pytest.raises(ValueError, match=r"bool \(5, 6\)"):
        prepare(torch.ones(5, 6), 5, 6)
    for op in OPS:
        with pytest.raises(ValueError, match="differs among 2"):
            ops.load(op).validate({"batch": 2, "seq": 8, "mask": "padding:lengths=3+4"})
        with pytest.raises(ValueError, match="format must be csr"):
            ops.load(op).validate({"format": "ellpack"})


@pytest.mark.parametrize("op", ["sddmm", "spmm", "gat"])
def test_the_work_of_the_longest_case_is_counted_at_once(op):
    """2^34 elements are not looked at one by one."""
    case = ops.load(op).validate({"seq": 1 << 17, "mask": "sliding_window:left=128,right=0"})
    kept = (1 << 17) * 129 - 128 * 129 // 2
    assert kept in ops.load(op).cost(case, "float32").notes.values()
