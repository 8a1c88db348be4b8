"""Decoding with ALiBi and a bias: what is added to scores, where, and what is refused."""

import pytest
import torch

from fusescope import kernels, ops
from fusescope.core.errors import Unsupported
from fusescope.core.sources import families
from fusescope.ops.attention import attention, attention_decode
from fusescope.ops.attention.describe.decode import slopes
from tests.attention.decode_tools import BIASED_CASES, make, wrong

VARIANTS = families()["attention_decode"].variants
KERNELS = [
    pytest.param(v.name, v.device, marks=[pytest.mark.gpu] if v.device == "cuda" else [], id=v.name)
    for v in VARIANTS
    if v.device == "cpu" or v.takes.scored
]
OP = ops.load("attention_decode")
CASE = BIASED_CASES[1]
SMALL = {"batch": 2, "heads": 4, "kv_heads": 2, "seq_max": 64, "head_dim": 32, "lengths": "64+20"}


@pytest.mark.parametrize("dtype", ("float32", "float16", "bfloat16"))
@pytest.mark.parametrize("impl, device", KERNELS)
def test_it_is_what_is_specified(impl, device, dtype):
    judged, takes = 0, families()["attention_decode"].variant(impl).takes
    for number, given in enumerate(BIASED_CASES):
        case = make(**given, dtype=dtype, device=device, seed=number, strided=number % 3 == 1)
        try:
            out = attention_decode(*case.args, impl=impl, **case.options)
        except Unsupported as refusal:
            wide = not takes.has_head_dim(case.q.shape[3])
            assert device == "cuda" and (dtype == "float32" or "fp8" in given or wide), refusal
            continue
        judged += 1
        assert wrong(out, case) is None, given
        assert torch.equal(out, attention_decode(*case.args, impl=impl, **case.options)), given
    assert judged or dtype == "float32"


@pytest.mark.parametrize("heads", (8, 12))
def test_alibi_is_that_of_transformers(heads):
    """Of BLOOM and MPT, whose tensors differ from ours by a constant in each row."""
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor
    from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor

    q, k, v = torch.randn(2, heads, 1, 32), *torch.randn(2, 2, heads, 50, 32)
    out = attention_decode(q, k, v, torch.tensor([50, 50]).int(), alibi_slopes=torch.tensor(slopes(heads)))
    bloom = build_alibi_tensor(torch.ones(2, 50), heads, torch.float32).view(2, heads, 1, 50)
    mpt = build_mpt_alibi_tensor(heads, 50)[None]
    for alibi in (bloom, mpt):
        expected = torch.softmax(q @ k.transpose(2, 3) * 32**-0.5 + alibi, -1) @ v
        torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-5)


def test_it_is_attention_with_that_bias():
    """On which side of soft-capping and sinks, too."""
    q, k, v = torch.randn(1, 4, 3, 32), *torch.randn(2, 1, 2, 40, 32)
    given, bias = {"softcap": 1.5, "sinks": torch.tensor([-1.0, 0, 1, 2])}, torch.randn(4, 3, 40)
    slope, distance = torch.tensor([0.5, 0.1, 0.0, -0.1]), torch.arange(40) - torch.arange(37, 40)[:, None]
    out = attention_decode(q, k, v, torch.tensor([40]).int(), **given, bias=bias, alibi_slopes=slope)
    added, sees = bias + slope[:, None, None] * distance, distance <= 0
    torch.testing.assert_close(out, attention(q, k, v, sees, **given, bias=added), rtol=1e-5, atol=1e-5)


def test_each_token_is_a_step_of_its_own():
    case = make((40, 6), (4, 2), tokens=4, dtype="float32", alibi=True, bias="bht1")
    q, k, v, lengths = case.args
    slope, bias = case.options["alibi_slopes"], torch.randn(2, 4, 4, k.shape[2])
    out = attention_decode(*case.args, window=9, alibi_slopes=slope, bias=bias)
    for t in range(4):
        given = {"window": 9, "alibi_slopes": slope, "bias": bias[:, :, t : t + 1]}
        one = attention_decode(q[:, :, t : t + 1], k, v, lengths - 3 + t, **given)
        torch.testing.assert_close(out[:, :, t : t + 1], one)


@pytest.mark.parametrize(
    "change, error, text",
    (
        ({"alibi_slopes": [0.5] * 4}, TypeError, "alibi_slopes is a tensor, not list"),
        ({"alibi_slopes": torch.ones(3)}, ValueError, r"one of each of the 4 query heads; .* \(3,\)"),
        ({"alibi_slopes": torch.ones(4).half()}, ValueError, "alibi_slopes are float32, .* torch.float16"),
        ({"alibi_slopes": torch.ones(4, device="meta")}, ValueError, "on q's device cpu, not on meta"),
        (
            {"alibi_slopes": torch.ones(4, requires_grad=True)},
            Unsupported,
            "alibi_slopes requires a gradient",
        ),
        ({"bias": 0.5}, TypeError, "bias is a tensor added to the scores, not float"),
        (
            {"bias": torch.ones(96, dtype=torch.bool)},
            TypeError,
            "torch.float16 or torch.float32, not torch.bool",
        ),
        ({"bias": torch.ones(96).bfloat16()}, TypeError, "not torch.bfloat16"),
        ({"bias": torch.ones(95)}, ValueError, r"\(B, H, T, S_max\) = \(3, 4, 3, 96\); its shape is \(95,\)"),
        ({"bias": torch.ones(3, 2, 3, 96)}, ValueError, "bias is broadcastable to"),
        ({"bias": torch.ones(1, 3, 4, 3, 96)}, ValueError, "bias is broadcastable to"),
        ({"bias": torch.ones(96, device="meta")}, ValueError, "bias is on q's device cpu, not on meta"),
        (
            {"bias": torch.ones(96, requires_grad=True)},
            Unsupported,
            "attention_decode .* bias requires a gradi",
        ),
    ),
)
def test_what_is_refused(change, error, text):
    case = make(**CASE)
    assert case.k.shape[2] == 96
    with pytest.raises(error, match=text):
        attention_decode(*case.args, **case.options | change)


def test_a_bias_is_as_wide_as_the_table_of_pages():
    case = make((70, 9), (4, 2), page=32)
    bias = torch.randn(4, 1, 32 * case.options["block_table"].shape[1])
    case.options["bias"] = bias
    assert wrong(attention_decode(*case.args, **case.options), case) is None
    with pytest.raises(ValueError, match=r"\(2, 4, 1, 128\); its shape is \(4, 1, 127\)"):
        attention_decode(*case.args, **case.options | {"bias": bias[..., 1:]})


def test_the_operator_refuses_what_does_not_fit():
    kernels.load("cpu", ("attention_decode",))
    case = make(**CASE)
    run, given = torch.ops.fusescope.attention_decode_general, (*case.args, None, "cpu", None, 0, *[None] * 4)
    for slope, bias, text in (
        (torch.ones(3), None, "alibi_slopes are float32, one of each query head"),
        (torch.ones(8)[::2], None, "alibi_slopes are float32"),
        (None, torch.ones(95), r"bias is broadcastable to \(B, H, T, S_max\)"),
        (None, torch.ones(1, 1, 1, 1, 96), "bias has up to four dimensions"),
        (None, torch.ones(96).bfloat16(), "bias is of float32 or of q's dtype"),
    ):
        with pytest.raises(RuntimeError, match=text):
            run(*given, slope, bias)


@pytest.mark.slow
def test_compiled_and_as_an_operator():
    torch._dynamo.reset()
    case = make(**CASE, dtype="float32")
    kernels.load("cpu", ("attention_decode",))
    compiled = torch.compile(
        lambda q: attention_decode(q, *case.args[1:], **case.options), fullgraph=True, backend="eager"
    )
    assert wrong(compiled(case.q), case) is None
    args = (*case.args, None, "cpu", *case.more)
    done = torch.library.opcheck(torch.ops.fusescope.attention_decode_general.default, args)
    assert set(done.values()) == {"SUCCESS"}


@pytest.mark.gpu
@pytest.mark.parametrize("impl", [v.name for v in VARIANTS if v.device == "cuda" and not v.takes.scored])
@pytest.mark.parametrize("option", ({"alibi": True}, {"bias": "s"}))
def test_other_kernels_refuse_it(impl, option):
    case = make((70, 9), (4, 2), **option, device="cuda")
    with pytest.raises(Unsupported, match=r"alibi_slopes or a bias .*v3_one_launch and v4_cluster take them"):
        attention_decode(*case.args, impl=impl, **case.options)


@pytest.mark.gpu
def test_a_captured_graph_follows_slopes_and_bias():
    case = make((3000, 70), (8, 2), alibi=True, bias="1h11 float32", device="cuda")
    graph = torch.cuda.CUDAGraph()
    attention_decode(*case.args, **case.options)
    with torch.cuda.graph(graph):
        out = attention_decode(*case.args, **case.options)
    case.options["alibi_slopes"].mul_(0.25)
    graph.replay()
    assert torch.equal(out, attention_decode(*case.args, **case.options)) and wrong(out, case) is None


@pytest.mark.parametrize(
    "peer", ("eager", "sdpa", "sdpa_grouped", pytest.param("flex", marks=pytest.mark.slow))
)
@pytest.mark.parametrize("added", ({"alibi": "yes"}, {"bias": "head"}, {"alibi": "yes", "bias": "head"}))
@pytest.mark.parametrize("given", ({}, {"tokens": 3, "page": "16", "window": 9}, {"lengths": "full"}))
def test_peers_are_the_reference(peer, added, given):
    case = OP.validate(SMALL | added | given)
    inputs = OP.inputs(case, "float32", "cpu", 0, contiguous=peer != "sdpa")
    out = ops.make(OP.NAME, peer, inputs)()
    torch.testing.assert_close(out.double(), OP.reference(inputs), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(OP.call(inputs, "auto").double(), OP.reference(inputs), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("tokens", (1, 3))
@pytest.mark.parametrize("window", (None, 9))
@pytest.mark.parametrize("lengths", ("64+20", "2+0", "30+30", "10+50"))
def test_cost_counts_the_bias_that_is_seen(tokens, window, lengths):
    """Against the places of a bias whose NaN reaches a result."""
    plain = OP.validate(SMALL | {"tokens": tokens, "window": window, "lengths": lengths})
    case = OP.validate(plain | {"bias": "head", "alibi": "yes"})
    more = OP.cost(case, "float32").bytes_read - OP.cost(plain, "float32").bytes_read
    inputs = OP.inputs(case, "float32", "cpu", 0)
    reached = 0
    for token in range(tokens):
        for key in range(64):
            bias = inputs["bias"].clone()
            bias[0, 1, token, key] = torch.nan
            reached += bool(OP.reference(inputs | {"bias": bias}).isnan().any())
    assert more == 4 * 4 * reached + 4 * 4


def test_tolerance_is_that_of_fewer_keys():
    def keys(**added):
        return OP.tolerance(OP.validate(SMALL | {"lengths": "full", "heads": 8} | added), "float32").reason

    assert "at least 64 keys" in keys() and "at least 24 keys" in keys(bias="head")
    weights = torch.exp(-max(slopes(8)) * torch.arange(64.0))
    assert f"at least {round(float(weights.sum() ** 2 / (weights**2).sum()))} keys" in keys(alibi="yes")
