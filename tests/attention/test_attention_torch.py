"""Attention as a citizen of torch: opcheck, torch.compile without a graph break, CUDA graphs and streams, no
torch at import."""

import itertools
import subprocess
import sys

import pytest
import torch

from fusescope import kernels, masks
from fusescope.core import paths
from fusescope.core.errors import Unsupported
from fusescope.ops.attention import Score, attention, choose, functional, prepare
from fusescope.ops.attention.dispatch import kernel_sources, planned
from fusescope.ops.attention.dispatch.dispatch import Dispatch
from fusescope.ops.attention.work import parts
from tests.attention.attention_tools import COMPILER

DEVICES = [("cpu", "cpu"), pytest.param("cuda", "v1_rowwise", marks=pytest.mark.gpu)]


def _qkv(device="cpu", dtype=torch.float32):
    generator = torch.Generator(device=device).manual_seed(0)
    make = lambda *shape: torch.randn(shape, generator=generator, device=device).to(dtype)  # noqa: E731
    return make(2, 4, 70, 64), make(2, 2, 90, 64), make(2, 2, 90, 64)


@pytest.mark.slow
@pytest.mark.parametrize("device, impl", DEVICES)
def test_opcheck(device, impl):
    kernels.load(device)
    q, k, v = _qkv(device)
    bias = torch.randn(1, 4, 70, 90, device=device)
    for mask, added in ((None, None), (masks.load("causal"), bias)):
        plan = prepare(mask, 70, 90, device)
        for out_bshd in (False, True):
            args = (q, k, v, impl, plan.buffer, plan.layout, 0.125, added, out_bshd)
            results = torch.library.opcheck(torch.ops.fusescope.attention.default, args)
            assert set(results.values()) == {"SUCCESS"}


@pytest.mark.slow
@pytest.mark.parametrize("device, impl", DEVICES)
def test_compile_without_a_graph_break(device, impl):
    torch._dynamo.reset()
    q, k, v = _qkv(device)
    plan = prepare(masks.load("sliding_window"), 70, 90, device)

    def layer(q, k, v, plan):
        return attention(q * 2, k, v, plan) + 1

    compiled = torch.compile(layer, fullgraph=True)
    with torch.no_grad():
        torch.testing.assert_close(compiled(q, k, v, plan), layer(q, k, v, plan))
        torch.testing.assert_close(compiled(q, k, v, None), layer(q, k, v, None))


@pytest.mark.parametrize("device, impl", DEVICES)
def test_compiled_output_in_the_order_of_the_next_projection(device, impl):
    torch._dynamo.reset()
    q, k, v = _qkv(device)
    plan = prepare(masks.load("causal"), 70, 90, device)

    def layer(q, k, v):
        return attention(q, k, v, plan, out_bshd=True).transpose(1, 2).reshape(2, 70, 256) * 2

    with torch.no_grad():
        expected = attention(q, k, v, plan).transpose(1, 2).reshape(2, 70, 256) * 2
        compiled = torch.compile(layer, fullgraph=True, backend=COMPILER[device])
        torch.testing.assert_close(compiled(q, k, v), expected)


def _alibi(device):
    return Score("score + slope[h] * (k - q)", slope=torch.tensor([0.5, 0.3, 0.2, 0.1], device=device))


MODIFIED = {
    "plain": lambda device: {},
    "softcap": lambda device: {"softcap": 2.0},
    "sinks": lambda device: {"sinks": torch.linspace(-2, 3, 4, device=device).half()},
    "text": lambda device: {"score": "3 * tanh(score / 3)", "sinks": torch.ones(4, device=device)},
    "score": lambda device: {"score": _alibi(device)},
}


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("given", MODIFIED)
def test_one_graph_for_all_masks_of_a_shape(given, device, monkeypatch):
    """Plans of any size and kind, of one mask and one a sequence, also where the graph is made before
    anything was called. The kernel is chosen for each plan when it runs."""
    from torch._dynamo.testing import CompileCounterWithBackend

    torch._dynamo.reset()
    counted = CompileCounterWithBackend(COMPILER[device])
    monkeypatch.setattr(functional, "_dispatch", Dispatch("attention"))
    name, more = "choose" if given == "plain" else "choose_scored", MODIFIED[given](device)
    own, chosen_for = getattr(functional, name), []
    monkeypatch.setattr(functional, name, lambda *args: chosen_for.append(args[3]) or own(*args))

    def layer(q, k, v, plan):
        return attention(q * 2, k, v, plan, scale=0.3, out_bshd=True, **more) + 1

    compiled = torch.compile(layer, fullgraph=True, backend=counted)
    # sizes of no plan that was made before torch._dynamo was there
    q, k, v = (t[:, :, 1:] for t in _qkv(device))
    plans = [
        prepare(masks.parse("padding:lengths=89+7" if name == "padding" else name), 69, 89, device)
        for name in masks.names()
    ]
    with torch.no_grad():
        outs = [compiled(q, k, v, plan) for plan in plans]
        assert counted.frame_count == 1 and chosen_for == plans
        for out, plan in zip(outs, plans):
            torch.testing.assert_close(out, layer(q, k, v, plan))
            assert out.transpose(1, 2).is_contiguous()
        with pytest.raises(ValueError, match="the plan is for 89 queries and 69 keys"):
            compiled(q, k, v, prepare(masks.load("causal"), 89, 69, device))


@pytest.mark.parametrize("given", MODIFIED)
def test_a_node_of_the_graph_is_one_line(given):
    """Inductor writes nodes into comments, behind which a score expression's text once went on."""
    lines = []

    def backend(graph, inputs):
        lines.extend(node.format_node() for node in graph.graph.nodes)
        return graph

    q, k, v = _qkv("cpu")
    plan, more = prepare(masks.load("causal"), 70, 90), MODIFIED[given]("cpu")
    compiled = torch.compile(lambda *t: attention(*t, **more), fullgraph=True, backend=backend)
    with torch.no_grad():
        torch.testing.assert_close(compiled(q, k, v, plan), attention(q, k, v, plan, **more))
    assert any("attention_planned" in line for line in lines if line)
    assert not [line for line in lines if line and "\n" in line]


def test_the_operator_that_finds_its_plan():
    planned.load()
    q, k, v = _qkv()
    plan = prepare(torch.ones(70, 90, dtype=torch.bool).tril(), 70, 90)
    score = _alibi("cpu")
    more = ((), (2.0, torch.ones(4)), (None, None, planned.one_line(score.header), list(score.tables)))
    for given, out_bshd in itertools.product(more, (False, True)):
        args = (q, k, v, plan.handle, 0.125, None, out_bshd, *given)
        results = torch.library.opcheck(torch.ops.fusescope.attention_planned.default, args)
        assert set(results.values()) == {"SUCCESS"}
    handle = plan.handle
    del plan
    with pytest.raises(RuntimeError, match="that this was compiled with is gone"):
        torch.ops.fusescope.attention_planned(q, k, v, handle, None, None, False)


@pytest.mark.long
def test_compile_finds_the_operator_in_a_fresh_process():
    code = (
        "import sys; from fusescope.ops.attention import attention; assert 'torch' not in "
        "sys.modules; import torch;"
        "q = torch.randn(1, 2, 9, 32); f = torch.compile(lambda q: attention(q, q, q), "
        "fullgraph=True, backend='eager');"
        "assert torch.equal(f(q), attention(q, q, q))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=paths.ROOT, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("fullgraph", (True, False))
@pytest.mark.parametrize(
    "mask", (masks.load("causal"), torch.ones(70, 90, dtype=torch.bool)), ids=("Mask", "tensor")
)
def test_an_unprepared_mask_under_compile_is_an_error(mask, fullgraph):
    torch._dynamo.reset()
    compiled = torch.compile(lambda q, k, v: attention(q, k, v, mask), fullgraph=fullgraph, backend="eager")
    with pytest.raises(
        RuntimeError, match=r"under torch.compile a mask must be prepared: pass prepare\(mask"
    ):
        compiled(*_qkv())


def _graphs_of(function, *args):
    """The calls that compiled code makes of the operator, as (kernel, plan, layout), without running them."""
    found = []

    def backend(graph, inputs):
        for node in graph.graph.nodes:
            if "fusescope" in str(node.target):
                impl, plan, layout = node.args[3:6]
                found.append((impl, getattr(graph, plan.target) if plan.op == "get_attr" else plan, layout))
        return lambda *inputs: (inputs[0],)

    torch._dynamo.reset()
    torch.compile(function, fullgraph=True, backend=backend)(*args)
    return found


def test_a_kernel_in_parts_is_compiled_with_its_work_as_a_constant():
    q = torch.randn(2, 3, 256, 64, dtype=torch.float16)
    plans = [
        prepare(masks.load("dilated", window=20, dilation=2), 256, 256),
        prepare(masks.load("causal"), 256, 256),
    ]
    for plan in plans:
        ((impl, buffer, layout),) = _graphs_of(
            lambda q, plan=plan: attention(q, q, q, plan, impl="v5_parts"), q
        )
        work = parts.of(plan, 2, 3, 64)
        assert impl == "v5_parts" and layout == work.layout and torch.equal(buffer, work.buffer)
    with pytest.raises(RuntimeError, match="a kernel in parts needs a plan"):
        _graphs_of(lambda q: attention(q, q, q, impl="v5_parts"), q)


@pytest.mark.gpu
def test_compiled_auto_takes_a_mask_in_parts():
    q = torch.randn(1, 4, 1024, 64, dtype=torch.float16, device="cuda")
    plan = prepare(masks.load("dilated", window=100, dilation=4), 1024, 1024, "cuda")
    if torch.cuda.get_device_capability() == (9, 0):
        assert choose(q, q, q, plan) == "v5_parts"
    torch._dynamo.reset()
    with torch.no_grad():
        out = torch.compile(lambda q: attention(q, q, q, plan) * 2, fullgraph=True)(q) / 2
    torch.testing.assert_close(out, attention(q, q, q, plan, impl="v1_rowwise"), rtol=2e-3, atol=1e-3)


@pytest.mark.gpu
def test_an_unprepared_mask_under_capture_is_an_error_and_a_prepared_one_works():
    q, k, v = _qkv("cuda", torch.float16)
    mask = masks.load("sliding_window", left=11, right=3)
    attention(q, k, v)  # loads the library
    with (
        pytest.raises(RuntimeError, match="under CUDA graph capture a mask must be prepared"),
        torch.cuda.graph(torch.cuda.CUDAGraph()),
    ):
        attention(q, k, v, mask)
    plan = prepare(mask, 70, 90, "cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = attention(q, k, v, plan)
    q.normal_()
    graph.replay()
    torch.testing.assert_close(out, attention(q, k, v, plan))


@pytest.mark.gpu
def test_it_runs_on_the_current_stream():
    q, k, v = _qkv("cuda", torch.float16)
    expected = attention(q, k, v)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(100_000_000)
        doubled = torch.cat([q, q])[:2]
        out = attention(doubled, k, v)
    stream.synchronize()
    torch.testing.assert_close(out, expected)


def _cuda_kernels():
    from fusescope.core.sources import families

    return [v.name for v in families()["attention"].variants if v.device == "cuda"]


@pytest.mark.gpu
@pytest.mark.parametrize("impl", [*_cuda_kernels(), "auto"])
def test_every_kernel_can_be_captured_on_another_stream_with_a_prepared_plan(impl):
    """Nothing in the call synchronises, allocates outside the pool or builds a plan; a replay sees new values
    and repeats its bits."""
    q, k, v = _qkv("cuda", torch.float16)
    plan = prepare(masks.load("longformer", window=9, global_tokens=2), 70, 90, "cuda")
    bias = torch.randn(1, 4, 1, 90, device="cuda", dtype=torch.float16)
    try:
        attention(q, k, v, plan, bias=bias, impl=impl)
    except Unsupported as error:
        pytest.skip(str(error))
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        out = attention(q, k, v, plan, bias=bias, impl=impl)
        turned = attention(q, k, v, plan, bias=bias, impl=impl, out_bshd=True)
    q.normal_()
    graph.replay()
    torch.testing.assert_close(out, attention(q, k, v, plan, bias=bias, impl=impl))
    assert torch.equal(turned, out) and turned.transpose(1, 2).is_contiguous()
    first = out.clone()
    graph.replay()
    assert torch.equal(out, first)


@pytest.mark.gpu
def test_compile_with_auto_on_a_gpu():
    """Compiled code and the call, both held against float64."""
    torch._dynamo.reset()
    q, k, v = _qkv("cuda", torch.float16)
    plan, live = (
        prepare(masks.load("causal"), 70, 90, "cuda"),
        torch.ones(70, 90, dtype=torch.bool).tril(20).cuda(),
    )
    groups = q.shape[1] // k.shape[1]
    wide = (q.double(), *(t.double().repeat_interleave(groups, 1) for t in (k, v)))
    expected = torch.nn.functional.scaled_dot_product_attention(*wide, attn_mask=live)
    with torch.no_grad():
        compiled = torch.compile(lambda q, k, v: attention(q, k, v, plan) * 2, fullgraph=True)
        for out in (compiled(q, k, v) / 2, attention(q, k, v, plan)):
            torch.testing.assert_close(out.double(), expected, rtol=2e-3, atol=1e-3)


@pytest.mark.gpu
def test_no_synchronisation_in_a_call_with_a_plan():
    q, k, v = _qkv("cuda", torch.float16)
    plan = prepare(masks.load("causal"), 70, 90, "cuda")
    asked = (plan, masks.load("causal"), None)
    for mask in asked:  # the first call of a kind makes its work items
        attention(q, k, v, mask)
    torch.cuda.set_sync_debug_mode("error")
    try:
        for mask in asked:
            attention(q, k[:, :, :90], v, mask)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.gpu
def test_another_device_may_be_current():
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU: no other device can be current")
    for device, current in (("cuda:1", 0), ("cuda:0", 1)):
        q, k, v = _qkv(device, torch.float16)
        with torch.cuda.device(q.device):
            expected = attention(q, k, v, masks.load("causal"))
        with torch.cuda.device(current):
            for _ in range(2):
                torch.testing.assert_close(attention(q, k, v, masks.load("causal")), expected)
            assert torch.cuda.current_device() == current


@pytest.mark.gpu
@pytest.mark.parametrize("impl", _cuda_kernels())
def test_opcheck_of_every_kernel(impl):
    kernels.load("cuda")
    q, k, v = _qkv("cuda", torch.float16)
    plan = prepare(masks.load("causal"), 70, 90, "cuda")
    try:
        attention(q, k, v, plan, impl=impl)
    except Unsupported as error:
        pytest.skip(str(error))
    group = kernel_sources.group(impl)
    taken = plan if group is None else parts.work(plan, q, k, group)
    results = torch.library.opcheck(
        torch.ops.fusescope.attention.default, (q, k, v, impl, taken.buffer, taken.layout)
    )
    assert set(results.values()) == {"SUCCESS"}
