"""The layer's operators as torch sees them: schemas, fake kernels, torch.compile, streams and CUDA graphs."""

import pytest
import torch

from fusescope import kernels, ops
from fusescope.ops.layer import padding
from fusescope.ops.layer.bias_gelu import bias_gelu
from fusescope.ops.layer.bias_residual_layernorm import bias_residual_layernorm
from fusescope.ops.layer.embedding_layernorm import embedding_layernorm
from fusescope.ops.layer.linear import linear
from fusescope.ops.layer.split_heads import split_heads

NAMES = ("bias_residual_layernorm", "bias_gelu", "split_heads", "linear", "padding", "embedding_layernorm")


def _offsets(d):
    return padding.offsets(torch.tensor([2, 0, 3], device=d), 4)


CALLS = {
    "bias_residual_layernorm": lambda d: (
        torch.randn(3, 9, device=d).t(),
        None,
        torch.randn(9, 3, device=d),
        *torch.randn(2, 3, device=d),
        1e-12,
    ),
    "bias_gelu": lambda d: (torch.randn(2, 3, 9, device=d), torch.randn(9, device=d), False),
    "split_heads": lambda d: (torch.randn(2, 3, 16, device=d), torch.randn(16, device=d), 2, 1),
    "linear": lambda d: (
        torch.randn(2, 3, 16, device=d),
        torch.randn(16, 8, device=d).t(),
        torch.randn(8, device=d),
        torch.randn(2, 3, 8, device=d),
        1,
        True,
    ),
    "padding_offsets": lambda d: (torch.tensor([2, 0, 3], device=d), 4, 6),
    "padding_pack": lambda d: (torch.randn(3, 4, 5, device=d), _offsets(d)[1]),
    "padding_unpack": lambda d: (torch.randn(5, 6, device=d), _offsets(d)[0], 3, 4),
    "embedding_layernorm": lambda d: (
        torch.randn(7, 8, device=d),
        torch.tensor([[0, 6]], device=d),
        None,
        None,
        torch.randn(2, 8, device=d),
        None,
        *torch.randn(2, 8, device=d),
        1e-12,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_opcheck(name, device):
    kernels.load(device)
    impl = kernels.choose(name.split("_")[0] if name.startswith("padding") else name, device)
    if (name, device) == ("linear", "cuda"):  # whose ladder ends with products of 16-bit types alone
        impl = "v2_measured"
    torch.library.opcheck(getattr(torch.ops.fusescope, name).default, (*CALLS[name](device), impl))


@pytest.mark.sample(1)
@pytest.mark.slow
def test_functions_compile_without_a_graph_break(device):
    table, ids = torch.randn(11, 16, device=device), torch.tensor([[0, 10, 3], [7, 1, 0]], device=device)
    lengths, vector = torch.tensor([3, 1], device=device), torch.randn(16, device=device)
    weight = torch.randn(16, 16, device=device)

    def layer(ids, lengths):
        x = embedding_layernorm(ids, None, None, table, None, None, vector, vector)
        packed, cu_seqlens, _ = padding.pack(x, lengths, 5)
        q, _, _ = split_heads(linear(packed, weight, vector), vector, 2, 1)
        y = bias_residual_layernorm(
            packed, vector, bias_gelu(linear(packed, weight, None, "gelu", packed), vector), vector, vector
        )
        return padding.unpack(y, cu_seqlens, 2, 3), q

    right = layer(ids, lengths)
    for found, wanted in zip(torch.compile(layer, fullgraph=True)(ids, lengths), right):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.gpu
@pytest.mark.parametrize("op", NAMES)
def test_runs_on_any_stream_and_in_a_graph(op):
    module = ops.load(op)
    inputs = module.inputs(module.validate({}), "float16", "cuda:0", seed=0)
    run = ops.make(op, "auto", inputs)
    right = ops.joined(op, run())
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        elsewhere = ops.joined(op, run())
    stream.synchronize()
    assert torch.equal(elsewhere, right)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = ops.joined(op, run())
    captured.zero_()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(captured, right)


@pytest.mark.gpu
def test_a_linear_layer_first_met_in_a_capture_is_right():
    """Nothing can be measured there: cuBLASLt's first guess is taken."""
    x, weight = (
        torch.randn(1000, 776, device="cuda", dtype=torch.float16),
        torch.randn(520, 776, device="cuda").half() / 28,
    )
    graph = torch.cuda.CUDAGraph()
    linear(x[:8], weight)  # the library is loaded and warm
    with torch.cuda.graph(graph):
        out = linear(x, weight)
    graph.replay()
    torch.cuda.synchronize()
    torch.testing.assert_close(out, torch.nn.functional.linear(x, weight), rtol=2e-3, atol=2e-3)


@pytest.mark.gpu
def test_a_product_is_measured_once_and_what_won_is_no_slower_than_the_guess(tmp_path, monkeypatch):
    from fusescope.ops.common import algorithms

    monkeypatch.setattr(algorithms, "_known", {})
    monkeypatch.setattr(algorithms, "_chosen", {})
    monkeypatch.setattr(algorithms, "file_of", lambda index: tmp_path / "algorithms.json")
    x, weight = (
        torch.randn(512, 768, device="cuda", dtype=torch.float16),
        torch.randn(768, 768, device="cuda").half() / 28,
    )
    right = torch.nn.functional.linear(x, weight)
    for _ in range(2):
        torch.testing.assert_close(linear(x, weight), right, rtol=2e-3, atol=2e-3)
    (entry,) = algorithms.known()
    assert entry["algorithms"] >= 1 and entry["best_ms"] <= entry["first_ms"] and entry["measured"] == "now"
    algorithms._known.clear()
    algorithms._chosen.clear()
    linear(x, weight)
    assert algorithms.known()[0]["measured"] == "before"


def test_the_fastest_implementation_is_measured_once_for_a_problem_and_kept_on_disk(tmp_path, monkeypatch):
    from contextlib import nullcontext

    from fusescope.ops.common import algorithms

    measured, times = [], {"v2_measured": 2.0, "fast": 1.0}

    def replayed(operands, calls):
        measured.append(sorted(calls))
        return {name: times[name] for name in calls}

    for name, value in (
        ("_chosen", {}),
        ("file_of", lambda index: tmp_path / "algorithms.json"),
        ("ensure", lambda *operands: None),
        ("own_products", lambda index: ("fast", "refuses")),
        ("_takes", lambda operands, impl: impl == "fast"),
        ("_replayed", replayed),
    ):
        monkeypatch.setattr(algorithms, name, value)
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    capturing = [True]
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: capturing[0])
    x, weight = torch.randn(64, 128), torch.randn(64, 128)
    assert algorithms.choose(x, weight, None, None, 0) == "v2_measured" and not measured
    capturing[0] = False
    assert [algorithms.choose(x, weight, None, None, 0) for _ in range(2)] == ["fast", "fast"]
    assert measured == [["fast", "v2_measured"]]
    times["fast"] = 3.0
    assert algorithms.choose(x, weight, None, None, 0, settled=True) == "v2_measured"  # a problem of its own
    algorithms._chosen.clear()
    assert algorithms.choose(x, weight, None, None, 0) == "fast" and len(measured) == 2  # read
    assert (
        algorithms.choose(x[:1], weight, None, None, 0) == "v2_measured" and len(measured) == 2
    )  # too small to matter
    monkeypatch.setattr(algorithms, "own_products", lambda index: ("fast", "refuses", "new"))
    algorithms._chosen.clear()
    assert algorithms.choose(x, weight, None, None, 0) == "v2_measured" and len(measured) == 3  # a new kernel


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [130, 13])
def test_kernels_that_start_before_the_last_one_ends_read_what_it_wrote(rows):
    """A chain of products and norms, each on the result of the one before, captured and not: the same as one
    by one."""
    from fusescope.ops.common import algorithms
    from fusescope.ops.layer.bias_residual_layernorm import bias_residual_layernorm

    own = algorithms.own_products(0) or ("v2_measured",)
    own = [impl for impl in own if rows <= 16 or impl not in ("v5_sixteen_rows", "v6_whole_lines")]
    torch.manual_seed(0)
    x, ones = torch.randn(rows, 768, device="cuda").half(), torch.ones(768, device="cuda").half()
    weights = [torch.randn(768, 768, device="cuda").half() / 28 for _ in range(6)]

    def chain(impls, wait=lambda: None):
        y = x
        for i, weight in enumerate(weights):
            y = bias_residual_layernorm(
                linear(y, weight, ones, "gelu", settled=True, impl=impls[i % len(impls)]), None, y, ones, ones
            )
            wait()
        return y

    for impls in (own[:1], own[-1:], own):
        right = chain(impls, torch.cuda.synchronize)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = chain(impls)
        for _ in range(20):
            assert torch.equal(chain(impls), right)
            out.fill_(float("nan"))
            graph.replay()
            assert torch.equal(out, right)


@pytest.mark.gpu
@pytest.mark.parametrize("activation", [None, "gelu", "gelu_tanh"])
def test_nan_and_infinity_pass_through_our_products(activation):
    from fusescope.ops.common import algorithms

    x, weight = torch.zeros(8, 64, device="cuda").half(), torch.eye(64, device="cuda").half()
    for i, value in enumerate((float("nan"), 60000.0, -60000.0, 9.0, -9.0)):
        x[i, i] = value
    bias = torch.zeros(64, device="cuda").half()
    bias[7] = float("inf")
    for impl in algorithms.own_products(0):
        found = linear(x, weight, bias, activation, impl=impl)
        right = torch.nn.functional.linear(x, weight, bias)
        if activation:
            right = torch.nn.functional.gelu(
                right, approximate="tanh" if activation == "gelu_tanh" else "none"
            )
        torch.testing.assert_close(found, right, equal_nan=True)


@pytest.mark.gpu
def test_offsets_and_packing_of_a_bucket_do_not_synchronise():
    lengths, x = torch.tensor([5, 0, 3], device="cuda"), torch.randn(3, 8, 16, device="cuda")
    padding.pack(x, lengths, 10)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        packed, cu_seqlens, _ = padding.pack(x, lengths, 10)
        back = padding.unpack(packed, cu_seqlens, 3, 8)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.equal(back[0, :5], x[0, :5]) and not back[1].any()
