"""The registered operators as torch sees them: schemas, fake kernels, torch.compile, streams and graphs."""

import pytest
import torch

from fusescope import kernels, ops
from fusescope.ops.dense.bmm import bmm
from fusescope.ops.dense.gemm import gemm
from fusescope.ops.dense.layernorm import layernorm
from fusescope.ops.dense.softmax import softmax

CALLS = {
    "add": lambda d: (torch.randn(7, 5, device=d).t(), torch.randn(5, 7, device=d)),
    "gemm": lambda d: (torch.randn(7, 33, device=d), torch.randn(5, 33, device=d).t()),
    "bmm": lambda d: (torch.randn(2, 1, 7, 3, device=d), torch.randn(4, 3, 2, device=d)),
    "bmm of a vector": lambda d: (torch.randn(3, device=d), torch.randn(4, 3, 2, device=d)),
    "softmax": lambda d: (torch.randn(3, 9, device=d).t(),),
    "layernorm": lambda d: (torch.randn(3, 9, device=d), torch.randn(9, device=d), None, 1e-5),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_opcheck(name, device):
    kernels.load(device)
    op = name.split()[0]
    ops.load(op)
    impl = (
        kernels.choose(op, device)
        if op not in ("gemm", "bmm")
        else ops.load(op).auto({"a": CALLS[name](device)[0]})
    )
    torch.library.opcheck(getattr(torch.ops.fusescope, op).default, (*CALLS[name](device), impl))


@pytest.mark.slow
def test_functions_compile_without_a_graph_break(device):
    x, w = torch.randn(6, 40, device=device), torch.randn(40, 32, device=device)
    weight = torch.randn(32, device=device)

    def block(x, w, weight):
        return softmax(layernorm(gemm(x, w), weight)) + bmm(x, w)

    eager = block(x, w, weight)
    torch.testing.assert_close(torch.compile(block, fullgraph=True)(x, w, weight), eager)


def test_the_compiled_peer_stays_compiled_over_many_shapes():
    """Dynamo gives up after so many shapes of one function; a sweep has more, and must not end in eager mode
    unnoticed."""
    module = ops.load("softmax")
    seen = []
    with torch._dynamo.config.patch(recompile_limit=1):
        for cols in (3, 4):
            inputs = module.inputs({"rows": 2, "cols": cols}, "float32", "cpu", seed=0)
            run = ops.make("softmax", "compile", inputs)
            torch.testing.assert_close(run(), module.reference(inputs).float())
            seen.append(run.backend)
    assert seen == ["inductor"] * 2


@pytest.mark.gpu
@pytest.mark.parametrize("op", ["add", "gemm", "bmm", "softmax", "layernorm"])
def test_runs_on_any_stream_and_in_a_graph(op):
    module = ops.load(op)
    inputs = module.inputs(module.validate({}), "float16", "cuda:0", seed=0)
    run = ops.make(op, "auto", inputs)
    right = run()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        elsewhere = run()
    stream.synchronize()
    assert torch.equal(elsewhere, right)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = run()
    captured.zero_()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(captured, right)
