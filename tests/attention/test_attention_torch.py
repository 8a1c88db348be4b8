"""Attention as a citizen of torch: opcheck, torch.compile without a graph break, CUDA graphs and streams, no torch at import."""

import subprocess
import sys

import pytest
import torch

from backend import kernels, masks
from backend.core import paths
from backend.core.errors import Unsupported
from backend.ops.attention import attention, parts, prepare

DEVICES = [("cpu", "cpu"), pytest.param("cuda", "v1_rowwise", marks=pytest.mark.gpu)]


def _qkv(device="cpu", dtype=torch.float32):
    generator = torch.Generator(device=device).manual_seed(0)
    make = lambda *shape: torch.randn(shape, generator=generator, device=device).to(dtype)  # noqa: E731
    return make(2, 4, 70, 64), make(2, 2, 90, 64), make(2, 2, 90, 64)


@pytest.mark.parametrize("device, impl", DEVICES)
def test_opcheck(device, impl):
    kernels.load(device)
    q, k, v = _qkv(device)
    bias = torch.randn(1, 4, 70, 90, device=device)
    for mask, added in ((None, None), (masks.load("causal"), bias)):
        plan = prepare(mask, 70, 90, device)
        args = (q, k, v, impl, plan.buffer, plan.layout, 0.125, added)
        results = torch.library.opcheck(torch.ops.fusescope.attention.default, args)
        assert set(results.values()) == {"SUCCESS"}


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


def test_compile_finds_the_operator_in_a_fresh_process():
    code = (
        "import sys; from backend.ops.attention import attention; assert 'torch' not in sys.modules; import torch;"
        "q = torch.randn(1, 2, 9, 32); f = torch.compile(lambda q: attention(q, q, q), fullgraph=True, backend='eager');"
        "assert torch.equal(f(q), attention(q, q, q))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=paths.ROOT, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("fullgraph", (True, False))
@pytest.mark.parametrize("mask", (masks.load("causal"), torch.ones(70, 90, dtype=torch.bool)), ids=("Mask", "tensor"))
def test_an_unprepared_mask_under_compile_is_an_error(mask, fullgraph):
    torch._dynamo.reset()
    compiled = torch.compile(lambda q, k, v: attention(q, k, v, mask), fullgraph=fullgraph, backend="eager")
    with pytest.raises(RuntimeError, match=r"under torch.compile a mask must be prepared: pass prepare\(mask"):
        compiled(*_qkv())


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
    from backend.core.sources import families

    return [v.name for v in families()["attention"].variants if v.device == "cuda"]


@pytest.mark.gpu
@pytest.mark.parametrize("impl", [*_cuda_kernels(), "auto"])
def test_every_kernel_can_be_captured_on_another_stream_with_a_prepared_plan(impl):
    """Nothing in the call synchronises, allocates outside the pool or builds a plan; a replay sees new values and repeats its bits."""
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
    q.normal_()
    graph.replay()
    torch.testing.assert_close(out, attention(q, k, v, plan, bias=bias, impl=impl))
    first = out.clone()
    graph.replay()
    assert torch.equal(out, first)


@pytest.mark.gpu
def test_compile_with_auto_on_a_gpu():
    torch._dynamo.reset()
    q, k, v = _qkv("cuda", torch.float16)
    plan = prepare(masks.load("causal"), 70, 90, "cuda")
    with torch.no_grad():
        compiled = torch.compile(lambda q, k, v: attention(q, k, v, plan) * 2, fullgraph=True)
        torch.testing.assert_close(compiled(q, k, v), attention(q, k, v, plan) * 2)


@pytest.mark.gpu
def test_no_synchronisation_in_a_call_with_a_plan():
    q, k, v = _qkv("cuda", torch.float16)
    plan = prepare(masks.load("causal"), 70, 90, "cuda")
    attention(q, k, v, plan)
    torch.cuda.set_sync_debug_mode("error")
    try:
        for mask in (plan, masks.load("causal"), None):
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
    taken = parts.work(plan, q, k) if impl == parts.KERNEL else plan
    results = torch.library.opcheck(torch.ops.fusescope.attention.default, (q, k, v, impl, taken.buffer, taken.layout))
    assert set(results.values()) == {"SUCCESS"}
