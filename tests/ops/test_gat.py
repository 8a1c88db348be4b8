"""Graph attention: against loops over edges, on awkward graphs, what it refuses, as a citizen of torch."""

import pytest
import torch

from fusescope import kernels, ops
from fusescope.core.errors import Unsupported
from fusescope.measure.checking.check import Case
from fusescope.ops.sparse.gat import gat, prepare

OP = ops.load("gat")
CASES = (
    {"seq": 1, "heads": 1, "head_dim": 1, "mask": "full"},
    {"seq": 50, "heads": 3, "head_dim": 8, "mask": "random:density=0.05"},  # some nodes have no neighbour
    {"seq": 70, "heads": 2, "head_dim": 72, "mask": "longformer:window=3,global_tokens=2"},
    {"seq": 33, "heads": 1, "head_dim": 130, "mask": "causal"},
    {"seq": 20, "heads": 2, "head_dim": 256, "mask": "sliding_window:left=2,right=1"},
    {"seq": 40, "heads": 5, "head_dim": 7, "mask": "random:density=0.3"},
)


def by_loops(x, left, right, keep, slope=0.2):
    out = torch.zeros(x.shape, dtype=torch.float64)
    x, left, right = x.double(), left.double(), right.double()
    for i in range(x.shape[0]):
        neighbours = keep[i].nonzero()[:, 0].tolist()
        for h in range(x.shape[1] if neighbours else 0):
            scores = torch.stack([left[h] @ x[i, h] + right[h] @ x[j, h] for j in neighbours])
            weights = torch.softmax(torch.where(scores < 0, slope * scores, scores), 0)
            out[i, h] = sum(w * x[j, h] for w, j in zip(weights, neighbours))
    return out


@pytest.mark.parametrize("values", CASES, ids=str)
def test_the_reference_is_the_formula(values):
    inputs = OP.inputs(OP.validate(values), "float32", "cpu", 0)
    keep = inputs["structure"].dense(torch.ones(inputs["structure"].entries)) > 0
    expected = by_loops(inputs["x"], inputs["left"], inputs["right"], keep)
    torch.testing.assert_close(OP.reference(inputs), expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(OP.call(inputs, "auto").double(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", OP.DTYPES)
def test_every_implementation_on_awkward_graphs(dtype, device):
    for number, values in enumerate(CASES):
        for contiguous in (True, False):
            case = Case(OP, OP.validate(values), dtype, device, seed=number, contiguous=contiguous)
            for impl in ("auto", *OP.PEERS):
                assert case.verify(ops.make("gat", impl, case.inputs)).reason is None, (
                    impl,
                    values,
                    contiguous,
                )


def test_any_slope_and_directed_graphs():
    keep = torch.zeros(5, 5, dtype=torch.bool)
    keep[0, 1:] = keep[3, 3] = True
    x, left, right = torch.randn(5, 2, 4), torch.randn(2, 4), torch.randn(2, 4)
    structure = prepare(keep, 5, 5)
    for slope in (0.2, 0.0, 1.0):
        out = gat(x, left, right, structure, negative_slope=slope)
        torch.testing.assert_close(out.double(), by_loops(x, left, right, keep, slope), rtol=1e-4, atol=1e-5)
    assert torch.equal(gat(x, left, right, structure)[[1, 2, 4]], torch.zeros(3, 2, 4))
    torch.testing.assert_close(gat(x, left, right, structure)[3], x[3])  # its only neighbour is itself
    assert gat(100 * x, left, right, structure).isfinite().all(), "large scores"


def test_a_softmax_over_all_nodes_is_caught():
    values = OP.validate({"seq": 60, "heads": 2, "head_dim": 16, "mask": "sliding_window:left=3,right=3"})
    case = Case(OP, values, "float32", "cpu", seed=0, contiguous=True)
    x, left, right, structure = (case.inputs[n] for n in ("x", "left", "right", "structure"))
    everybody = prepare(torch.ones(60, 60, dtype=torch.bool), 60, 60)
    assert case.verify(lambda: gat(x, left, right, everybody)).reason
    assert case.verify(lambda: gat(x, right, left, structure)).reason, "sides swapped"
    assert case.verify(lambda: gat(x, left, right, structure, negative_slope=1.0)).reason, "no LeakyReLU"
    assert case.verify(lambda: gat(x, left, right, structure)).reason is None


def test_what_is_refused():
    x, a = torch.randn(6, 2, 8), torch.randn(2, 8)
    structure = prepare(torch.ones(6, 6, dtype=torch.bool), 6, 6)
    with pytest.raises(ValueError, match=r"x \(N, H, F\) and left, right \(H, F\)"):
        gat(x, a, a[:, :4], structure)
    with pytest.raises(ValueError, match="CSR structure of 6 × 6 nodes, not 5 × 5"):
        gat(x, a, a, prepare(torch.ones(5, 5, dtype=torch.bool), 5, 5))
    with pytest.raises(TypeError, match="a Structure made by prepare"):
        gat(x, a, a, torch.ones(6, 6))
    with pytest.raises(Unsupported, match="300 features"):
        gat(torch.randn(6, 2, 300), torch.randn(2, 300), torch.randn(2, 300), structure)
    with pytest.raises(Unsupported, match="forward only"):
        gat(x.requires_grad_(), a, a, structure)
    with pytest.raises(ValueError, match="a graph is one mask"):
        OP.validate({"seq": 8, "mask": "padding:lengths=3+4"})


def test_opcheck(device):
    kernels.load(device)
    structure = (
        prepare(torch.rand(20, 20) < 0.3, 20, 20, "cpu")
        if device == "cpu"
        else prepare((torch.rand(20, 20) < 0.3).to(device), 20, 20, device)
    )
    x, a = torch.randn(20, 2, 16, device=device), torch.randn(2, 16, device=device)
    arguments = (
        x,
        a,
        a,
        structure.row_offsets,
        structure.columns,
        structure.order,
        0.2,
        kernels.choose("gat", device),
    )
    assert set(torch.library.opcheck(torch.ops.fusescope.gat.default, arguments).values()) == {"SUCCESS"}
