"""Attention with soft-capped scores and sinks."""

import itertools
import math

import pytest
import torch

from fusescope import kernels
from fusescope.core.errors import Unsupported
from fusescope.core.sources import families
from fusescope.ops.attention import attention
from tests.attention.attention_tools import OP, case
from tests.attention.scored_tools import reference, wrong

CASES = (
    {"seq": 70},
    {"seq": 66, "seq_k": 33, "mask": "causal", "head_dim": 40},  # rows without a key
    {
        "seq": 130,
        "mask": "bigbird:window=5,global_tokens=2,block=16",
        "bias": "head",
        "heads": 4,
        "kv_heads": 2,
    },
    {"seq": 70, "mask": "random:density=0.02", "head_dim": 96},  # keys one by one, rows without any
    {"seq": 65, "mask": "padding:lengths=66+3", "seq_k": 70, "batch": 2},
)
LONG = (
    {"seq": 1100, "head_dim": 128, "heads": 8, "kv_heads": 2, "mask": "sliding_window:left=90,right=0"},
    {"seq": 700, "batch": 16, "heads": 12, "mask": "longformer:window=60,global_tokens=5"},
    {"seq": 130, "seq_k": 1500, "head_dim": 96, "batch": 2},
)
# Of kernels on work items: lists that are split, parts of a mask, growing scores.
ITEMS = (
    {"seq": 4096, "mask": "causal", "kv_heads": 1},
    {"seq": 2048, "mask": "longformer:window=64,global_tokens=5", "head_dim": 128},
    {"seq": 2048, "mask": "strided:window=128,stride=64", "heads": 8, "head_dim": 64},
    {"seq": 1024, "mask": "strided:window=64,stride=16", "heads": 8, "batch": 4, "head_dim": 128},
    {"seq": 1024, "mask": "dilated:window=20,dilation=4", "batch": 2, "head_dim": 40},
    {"seq": 3000, "mask": "sliding_window:left=1024,right=0", "heads": 8, "kv_heads": 2, "head_dim": 128},
)
SINKS = (-math.inf, -4.0, 5.0, 30.0)
SCORED = [v.name for v in families()["attention"].variants if v.takes.scored and v.device == "cuda"]
GIVEN = ((2.0, False), (None, True), (30.0, True))


def _sinks(heads, wanted):
    return torch.linspace(-2, 3, heads) if wanted else None


@pytest.mark.parametrize("softcap, with_sinks", GIVEN)
@pytest.mark.parametrize("dtype", ("float32", "float16"))
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_it_is_what_is_specified(softcap, with_sinks, dtype, device):
    for number, values in enumerate(CASES):
        inputs = OP.inputs(case(**values), dtype, device, number, contiguous=number % 2 == 0)
        sinks = _sinks(inputs["q"].shape[1], with_sinks)
        sinks = sinks if sinks is None else sinks.to(device)
        given = dict(bias=inputs["bias"], softcap=softcap, sinks=sinks, out_bshd=number % 2 == 1)
        out = attention(inputs["q"] * 4, inputs["k"], inputs["v"], inputs["plan"], **given)
        assert wrong(out, inputs | {"q": inputs["q"] * 4}, dtype, softcap, sinks) is None, values


@pytest.mark.gpu
@pytest.mark.parametrize("impl", SCORED)
@pytest.mark.parametrize("dtype", ("float32", "float16", "bfloat16"))
def test_each_kernel_is_what_is_specified(impl, dtype):
    took = 0
    for number, (values, (softcap, with_sinks)) in enumerate(itertools.product(CASES + LONG, GIVEN)):
        inputs = OP.inputs(case(**values), dtype, "cuda", number)
        sinks = _sinks(inputs["q"].shape[1], with_sinks)
        given = dict(softcap=softcap, sinks=None if sinks is None else sinks.cuda(), bias=inputs["bias"])
        try:
            out = attention(inputs["q"], inputs["k"], inputs["v"], inputs["plan"], impl=impl, **given)
        except Unsupported:
            continue
        took += 1
        assert wrong(out, inputs, dtype, softcap, given["sinks"]) is None, (values, given)
    if not took:
        pytest.skip(f"{impl} takes none of these in {dtype}")


@pytest.mark.gpu
@pytest.mark.parametrize("impl", SCORED)
def test_split_lists_parts_and_rows_that_are_computed_again(impl):
    """Sinks of all signs; then a NaN of V, which rows that do not see its key do not see either."""
    took = 0
    for number, (values, softcap) in enumerate(itertools.product(ITEMS, (None, 9.0, 50.0))):
        inputs = OP.inputs(case(**{"heads": 4, "batch": 1} | values), "float16", "cuda", number)
        inputs["q"] *= (1, 30)[number % 2]
        q, k, v, plan = (inputs[name] for name in ("q", "k", "v", "plan"))
        sinks = torch.tensor(SINKS, device="cuda").repeat(q.shape[1] // len(SINKS))
        try:
            out = attention(q, k, v, plan, impl=impl, softcap=softcap, sinks=sinks)
        except Unsupported:
            continue
        took += 1
        assert wrong(out, inputs, "float16", softcap, sinks) is None, (values, softcap)
        key = torch.tensor([v.shape[2] - 20], device="cuda")
        spoilt = v.index_fill(2, key, math.nan)
        again = attention(q, k, spoilt, plan, impl=impl, softcap=softcap, sinks=sinks)
        seen = plan.dense()[..., key].expand(out.shape)
        assert again[seen].isnan().all()
        assert wrong(torch.where(seen, out, again), inputs, "float16", softcap, sinks) is None, values
    if not took:
        pytest.skip(f"{impl} takes none of these")


def test_both_change_the_result_and_none_is_the_plain_kernel():
    inputs = OP.inputs(case(70, mask="causal"), "float32", "cpu", 0)
    q, k, v, plan = (inputs[n] for n in ("q", "k", "v", "plan"))
    plain, nothing = attention(q, k, v, plan), torch.full((q.shape[1],), -math.inf)
    assert torch.equal(attention(q, k, v, plan, sinks=nothing), plain)
    assert (attention(q, k, v, plan, softcap=0.5) - plain).abs().max() > 1e-2
    assert (attention(q, k, v, plan, sinks=nothing.fill_(2)) - plain).abs().max() > 1e-2
    assert attention(q, k, v, plan, sinks=nothing.fill_(math.nan)).isnan().all()


def test_masked_keys_stay_unseen():
    inputs = OP.inputs(case(70, mask="causal"), "float32", "cpu", 0)
    q, k, v, plan, sinks = *(inputs[n] for n in ("q", "k", "v", "plan")), torch.ones(inputs["q"].shape[1])
    spoilt = [t.clone() for t in (k, v)]
    for t in spoilt:
        t[:, :, -1] = math.nan
    clean, out = (attention(q, *kv, plan, softcap=3.0, sinks=sinks) for kv in ((k, v), spoilt))
    assert torch.equal(clean[:, :, :-1], out[:, :, :-1]) and out[:, :, -1].isnan().all()


@pytest.mark.parametrize(
    "given, error, text",
    (
        ({"softcap": 0.0}, ValueError, "softcap is a finite number above 0, or None, not 0.0"),
        ({"softcap": math.inf}, ValueError, "not inf"),
        ({"sinks": torch.zeros(3)}, ValueError, "one of each of the 2 query heads"),
        ({"sinks": torch.zeros(2, dtype=torch.int32)}, ValueError, "floating-point scores"),
        ({"sinks": [0.0, 0.0]}, TypeError, "sinks is a tensor, not list"),
        ({"softcap": 1.0, "impl": "cpu_other"}, Unsupported, "no implementation 'cpu_other'"),
    ),
)
def test_what_it_refuses(given, error, text):
    q = torch.randn(1, 2, 9, 32)
    with pytest.raises(error, match=text):
        attention(q, q, q, **given)


@pytest.mark.slow
def test_compiled_and_as_an_operator():
    torch._dynamo.reset()
    inputs = OP.inputs(case(70, mask="causal"), "float32", "cpu", 0)
    q, k, v, plan, sinks = *(inputs[n] for n in ("q", "k", "v", "plan")), torch.ones(inputs["q"].shape[1])
    kernels.load("cpu", ("attention",))
    compiled = torch.compile(
        lambda q: attention(q, k, v, plan, softcap=2.0, sinks=sinks), fullgraph=True, backend="eager"
    )
    with torch.no_grad():
        assert wrong(compiled(q), inputs, "float32", 2.0, sinks) is None
    args = (q, k, v, "cpu", plan.buffer, plan.layout, None, None, True, 2.0, sinks)
    done = torch.library.opcheck(torch.ops.fusescope.attention_scored.default, args)
    assert set(done.values()) == {"SUCCESS"}
    with pytest.raises(RuntimeError, match="takes the name of a kernel"):
        torch.ops.fusescope.attention_scored(q, k, v, "auto", None, "", None, None, False, 2.0, None)


def test_sources_say_which_kernels_take_them():
    for variant in families()["attention"].variants:
        defined = "take_scored(" in variant.path.read_text()
        assert defined == (variant.takes.scored or variant.device == "cpu"), variant.name
        assert ("refused_by_expression(" in variant.path.read_text()) == variant.takes.expressed, variant.name


def test_the_reference_itself():
    """Of one query and two keys, by hand."""
    inputs = OP.inputs(case(1, 2), "float32", "cpu", 0)
    q, v = inputs["q"][0, 0, 0].double(), inputs["v"][0, 0].double()
    raw = (inputs["k"][0, 0].double() @ q / math.sqrt(q.numel())).tolist()
    weights = [math.exp(1.5 * math.tanh(s / 1.5)) for s in raw]
    expected = (weights[0] * v[0] + weights[1] * v[1]) / (sum(weights) + math.exp(0.7))
    torch.testing.assert_close(reference(inputs, 1.5, torch.full((2,), 0.7))[0, 0, 0], expected)
