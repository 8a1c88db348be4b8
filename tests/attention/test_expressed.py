"""Attention whose scores an expression modifies, against the float64 reference."""

import math

import pytest
import torch

from fusescope import kernels
from fusescope.core.errors import Unsupported
from fusescope.core.machine.archs import arch_of
from fusescope.core.sources import families
from fusescope.kernels import expressed
from fusescope.ops.attention import Score, attention, compile_score
from tests.attention.attention_tools import OP, case, wrong

ALIBI = "score + slope[h] * (k - q)"
CASES = (
    ({"seq": 70, "seq_k": 130, "heads": 4, "kv_heads": 2, "mask": "causal"}, ALIBI),
    ({"seq": 66, "seq_k": 33, "mask": "causal"}, "score + table[h, k - q + 32]"),  # rows without a key
    ({"seq": 90, "mask": "random:density=0.02"}, "where(document[q] == document[k], score, score - 3)"),
    ({"seq": 65, "mask": "padding:lengths=66+3", "seq_k": 70}, "5 * tanh(score / 5) / (1 + abs(q - k) / 64)"),
    (
        {"seq": 70, "mask": "dilated:window=9,dilation=2"},
        "where(h == 0 or q // 8 == k // 8, score, -1e30) + q % 3",
    ),
    ({"seq": 130, "seq_k": 65}, "score - log(1 + max(q - k, 0)) + sqrt(abs(k - 30)) * exp(-abs(score)) * b"),
    ({"seq": 70, "mask": "causal"}, "score + log(q - k + 1)"),  # -inf and NaN where the mask hides the key
    ({"seq": 1, "seq_k": 70}, "min(score, 0.5) * distance[k - 40]"),  # out of range: the nearest
)
LONG = (
    ({"seq": 1100, "heads": 8, "kv_heads": 2, "mask": "sliding_window:left=90,right=0"}, ALIBI),
    (
        {"seq": 700, "batch": 16, "heads": 12, "mask": "causal"},
        "where(document[q] == document[k], score, -1e9)",
    ),
    ({"seq": 130, "seq_k": 1500}, "30 * tanh(score / 30) + table[h, k - q + 130]"),
)


def made(values, text, dtype="float32", device="cpu", seed=0, **more):
    """The inputs of a case with this expression, whose tensors are drawn."""
    return OP.inputs(case(**{"head_dim": 40} | values | more, score=text), dtype, device, seed, seed % 2 == 0)


def run(inputs, impl="auto", **more):
    args, given = OP.arguments(inputs)
    return attention(*args, **given, impl=impl, **more)


@pytest.mark.parametrize("number", range(len(CASES)))
@pytest.mark.slow
def test_it_is_the_reference(number):
    """A build for each expression and dtype; a dtype each."""
    dtype = ("float32", "float16", "bfloat16")[number % 3]
    inputs = made(*CASES[number], dtype=dtype, seed=number)
    assert wrong(run(inputs), inputs, dtype) is None


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ("float32", "float16", "bfloat16"))
@pytest.mark.parametrize(
    "impl", [v.name for v in families()["attention"].variants if v.takes.expressed and v.device == "cuda"]
)
def test_each_kernel_is_the_reference(impl, dtype):
    if dtype not in families()["attention"].variant(impl).takes.dtypes:
        pytest.skip(f"{impl} does not take {dtype}")
    arch, cases = arch_of(*torch.cuda.get_device_capability()), []
    for number, (values, text) in enumerate(CASES + LONG):
        for head_dim in (64, 128):
            inputs = made(values, text, dtype, "cuda", 2 * number, head_dim=head_dim)
            cases.append((values, text, head_dim, inputs))
    headers = [(inputs["score"].header, head_dim) for _, _, head_dim, inputs in cases]
    kernels.load("cuda", ("attention",))
    expressed.load(expressed.Wanted(header, impl, arch, dtype, dim) for header, dim in headers)  # all at once
    for values, text, head_dim, inputs in cases:
        assert wrong(run(inputs, impl), inputs, dtype) is None, (values, text, head_dim)


@pytest.mark.slow
def test_alibi_is_a_bias_and_a_softcap_is_a_softcap():
    values = {"seq": 70, "seq_k": 130, "heads": 4, "mask": "causal"}
    inputs = made(values, ALIBI)
    q, k, v, plan = (inputs[name] for name in ("q", "k", "v", "plan"))
    slopes = torch.tensor([0.25, 0.0625, 2.0**-6, 2.0**-8])
    assert torch.equal(inputs["score"].tables[0], slopes)
    distance = torch.arange(130) - (torch.arange(70) + 60)[:, None]
    bias = slopes[:, None, None] * distance
    torch.testing.assert_close(run(inputs), attention(q, k, v, plan, bias=bias[None]), atol=2e-6, rtol=1e-5)
    capped = attention(q, k, v, plan, score="3 * tanh(score / 3)")
    torch.testing.assert_close(capped, attention(q, k, v, plan, softcap=3.0), atol=2e-6, rtol=1e-5)
    assert (capped - attention(q, k, v, plan)).abs().max() > 1e-3


@pytest.mark.slow
def test_scale_bias_sinks_and_layout_are_as_without():
    inputs = made({"seq": 33, "seq_k": 40, "mask": "causal"}, ALIBI)
    q, k, v, plan, score = (inputs[name] for name in ("q", "k", "v", "plan", "score"))
    bias, sinks = torch.randn(1, 2, 33, 40), torch.tensor([0.5, -math.inf])
    given = dict(bias=bias, scale=-0.3, sinks=sinks)
    out = attention(q, k, v, plan, score=score, out_bshd=True, **given)
    assert out.transpose(1, 2).is_contiguous()
    added = score.tables[0][:, None, None] * (torch.arange(40) - (torch.arange(33) + 7)[:, None])
    torch.testing.assert_close(
        out, attention(q, k, v, plan, **given | {"bias": bias + added}), atol=2e-6, rtol=1e-5
    )


@pytest.mark.slow
def test_masked_keys_and_scores_of_minus_infinity_are_unseen():
    """log(0) is -inf, for keys that only one head is to see; those of the last ten keys no query sees."""
    text = "score + log(where(k < 60 or h == 1, 1.0, 0.0) * scale[k])"
    mask = torch.ones(70, 80, dtype=torch.bool)
    mask[:, 70:] = False
    q, k, v = (torch.randn(1, 2, n, 40) for n in (70, 80, 80))
    score = Score(text, scale=torch.where(torch.arange(80) < 70, 1.0, math.nan))
    clean = attention(q, k, v, mask, score=score)
    seen = mask & (torch.arange(80) < 60)
    assert torch.equal(clean[:, 0], attention(q, k, v, seen)[:, 0]) or torch.allclose(
        clean[:, 0], attention(q, k, v, seen)[:, 0], atol=1e-6
    )
    torch.testing.assert_close(clean[:, 1], attention(q, k, v, mask)[:, 1], atol=2e-6, rtol=1e-5)
    spoilt = v.clone()
    spoilt[:, :, 70:] = math.nan
    assert torch.equal(attention(q, k, spoilt, mask, score=score), clean)
    spoilt[:, 0, 60:] = math.inf
    assert torch.equal(attention(q, k, spoilt, mask, score=score)[:, 0], clean[:, 0])


@pytest.mark.slow
def test_values_are_read_at_every_call():
    inputs = made({"seq": 33, "seq_k": 40, "mask": "causal"}, ALIBI)
    before = run(inputs)
    inputs["score"].tables[0].zero_()
    plain = attention(*(inputs[name] for name in ("q", "k", "v", "plan")))
    torch.testing.assert_close(run(inputs), plain, atol=2e-6, rtol=1e-5)
    assert (before - plain).abs().max() > 1e-3


def test_what_is_refused():
    q, ones = torch.randn(1, 2, 9, 40), torch.ones(2)
    wide = torch.ones(2, 4)
    for tensors, error, said in (
        ({"slope": [1.0, 2.0]}, TypeError, "slope is a tensor, not list"),
        ({"slope": ones.double()}, TypeError, "float32 or int32; slope is torch.float64"),
        ({"slope": ones.half()}, TypeError, "float32 or int32; slope is torch.float16"),
        ({"slope": ones.long()}, TypeError, "float32 or int32; slope is torch.int64"),
        ({"slope": ones[:0]}, ValueError, "1 to 2\\^31 - 1 elements; slope is of shape \\(0,\\)"),
        ({"slope": torch.ones(())}, ValueError, "one or two dimensions"),
        ({"slope": torch.ones(1, 2, 3)}, ValueError, "one or two dimensions"),
        ({"slope": wide}, ValueError, "the tensor slope has 2 dimensions"),
        ({"slope": torch.ones(4)[::2]}, ValueError, "is contiguous, as slope.contiguous\\(\\) is"),
        (
            {},
            ValueError,
            "an index follows the name of a tensor that is given with the expression \\(none is\\)",
        ),
        ({"slope": ones, "more": ones}, ValueError, "does not name the tensor more"),
        ({"slope": ones.to_sparse()}, Unsupported, "slope is a sparse_coo tensor"),
    ):
        with pytest.raises(error, match=said):
            Score(ALIBI, **tensors)
    score = Score(ALIBI, slope=ones)
    with pytest.raises(AttributeError, match="does not change"):
        score.header = ""
    assert repr(score) == "Score('score + slope[h] * (k - q)', slope=(2,))"
    for given, error, said in (
        ({"score": 3}, TypeError, "score is a fusescope.Score or the text of one without tensors, not int"),
        ({"score": ALIBI}, ValueError, "an index follows the name of a tensor"),
        ({"score": score, "softcap": 2.0}, ValueError, "softcap and score exclude each other"),
        (
            {"score": score, "impl": "v3_hopper"},
            Unsupported,
            "v3_hopper takes no score expression; v1_rowwise, v2",
        ),
        ({"score": score, "impl": "v4_scheduled"}, Unsupported, "is a kernel for cuda, and q is on cpu"),
        (
            {"score": Score(ALIBI, slope=torch.ones(2, requires_grad=True))},
            Unsupported,
            "requires a gradient",
        ),
        ({"score": Score(ALIBI, slope=torch.ones(2, device="meta"))}, ValueError, "lie on one device"),
    ):
        with pytest.raises(error, match=said):
            attention(q, q, q, **given)
    for given, error, said in (
        (("score", "float64", 40, "cpu"), Unsupported, "dtype torch.float64"),
        (("score", "float8", 40, "cpu"), TypeError, "dtype is a torch.dtype or its name, not 'float8'"),
        (("score", torch.float32, 41, "cpu"), Unsupported, "head size 41"),
        (("score +", torch.float32, 40, "cpu"), ValueError, "cannot be read"),
        (("score", torch.float32, 40, "cpu", "v5_parts"), Unsupported, "v5_parts takes no score expression"),
    ):
        with pytest.raises(error, match=said):
            compile_score(*given)


@pytest.mark.slow
def test_under_torch_compile_and_as_an_operator(monkeypatch):
    from fusescope.kernels.expressed import library

    torch._dynamo.reset()
    inputs = made({"seq": 33, "seq_k": 40, "mask": "causal"}, ALIBI)
    q, k, v, plan, score = (inputs[name] for name in ("q", "k", "v", "plan", "score"))
    kernels.load("cpu", ("attention",))

    def call(q, impl):
        return attention(q, k, v, plan, score=score, impl=impl)

    monkeypatch.setattr(library, "_loaded", {})
    for impl in ("auto", "cpu"):  # the latter while it is traced
        torch._dynamo.reset()
        library._loaded.clear()
        with torch.no_grad():
            out = torch.compile(call, fullgraph=True, backend="eager")(q, impl)
        assert len(library._loaded) == 1 and wrong(out, inputs, "float32") is None
        assert torch.equal(out, call(q, impl))
    assert compile_score(score, "float32", 40, "cpu") >= 0

    name = next(
        name for of, name in library._loaded.items() if of.header == score.header and of.head_dim == 40
    )
    args = (q, k, v, name, list(score.tables), plan.buffer, plan.layout, None, None, True, None)
    done = torch.library.opcheck(torch.ops.fusescope.attention_expressed.default, args)
    assert set(done.values()) == {"SUCCESS"}
    for tables in ([], [torch.ones(2, dtype=torch.int32)], [torch.ones(2, 2)], [torch.ones(2)] * 2):
        with pytest.raises(RuntimeError, match="others than those that it was compiled for"):
            torch.ops.fusescope.attention_expressed(q, k, v, name, tables)
    for tables in ([torch.ones(2, dtype=torch.float64)], [torch.ones(4)[::2]], [torch.ones(0)]):
        with pytest.raises(RuntimeError, match="float32 or int32, of one or two dimensions, contiguous"):
            torch.ops.fusescope.attention_expressed(q, k, v, name, tables)
    with pytest.raises(RuntimeError, match="no kernel 'cpu__none' is loaded: fusescope"):
        torch.ops.fusescope.attention_expressed(q, k, v, "cpu__none", [])


@pytest.mark.gpu
def test_under_cuda_graph_capture():
    inputs = made({"seq": 130, "mask": "causal"}, f"{ALIBI} * 0.75", "float16", "cuda", head_dim=64)
    graph = torch.cuda.CUDAGraph()
    said = "under CUDA graph capture a score expression must be compiled"
    with pytest.raises(RuntimeError, match=said), torch.cuda.graph(graph):
        run(inputs)
    compile_score(inputs["score"], torch.float16, 64, "cuda")
    run(inputs)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = run(inputs)
    inputs["score"].tables[0].mul_(3)
    graph.replay()
    assert wrong(out, inputs, "float16") is None


@pytest.mark.slow
@pytest.mark.parametrize("text", (ALIBI, CASES[4][1]))
def test_the_peers_compute_the_same(text):
    inputs = made({"seq": 40, "seq_k": 60, "mask": "causal"}, text)
    for name in ("eager", "sdpa", "flex", "composed"):
        try:
            out = OP.PEERS[name].make(inputs)()
        except Unsupported as error:
            assert "score expression" in str(error) and (name == "composed" or text != ALIBI)
            continue
        assert wrong(out.contiguous(), inputs, "float32") is None, name
