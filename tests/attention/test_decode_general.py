"""Decoding with several query tokens, pages, windows, soft-capping and sinks."""

import math

import pytest
import torch

from fusescope import kernels
from fusescope.core.errors import Unsupported
from fusescope.core.sources import families
from fusescope.ops.attention import attention_decode
from fusescope.ops.attention.dispatch import candidates
from tests.attention.decode_tools import CASES, FP8_CASES, make, wrong

VARIANTS = families()["attention_decode"].variants
KERNELS = [
    pytest.param(v.name, v.device, marks=[pytest.mark.gpu] if v.device == "cuda" else [], id=v.name)
    for v in VARIANTS
    if v.device == "cpu" or v.takes.scored
]
JOINING = [p.values[0] for p in KERNELS if p.values[1] == "cuda"]
FP8_CACHE = [v.name for v in VARIANTS if v.device == "cpu" or v.takes.fp8_cache]
PAGED = CASES[8]  # with lost pages


@pytest.mark.sample(2)
@pytest.mark.slow
@pytest.mark.parametrize("dtype", ("float32", "float16", "bfloat16"))
@pytest.mark.parametrize("impl, device", KERNELS)
def test_it_is_what_is_specified(impl, device, dtype):
    for number, given in enumerate(CASES):
        case = make(**given, dtype=dtype, device=device, seed=number, strided=number % 3 == 1)
        try:
            out = attention_decode(*case.args, impl=impl, **case.options)
        except Unsupported as refusal:
            assert device == "cuda" and dtype == "float32"
            pytest.skip(str(refusal))
        assert wrong(out, case) is None, given
        assert torch.equal(out, attention_decode(*case.args, impl=impl, **case.options)), given


@pytest.mark.sample(2)
@pytest.mark.slow
@pytest.mark.parametrize("dtype", ("float32", "float16", "bfloat16"))
@pytest.mark.parametrize("impl, device", [p for p in KERNELS if p.values[0] in FP8_CACHE])
def test_an_fp8_cache_is_what_is_specified(impl, device, dtype):
    for number, given in enumerate(FP8_CASES):
        case = make(**given, dtype=dtype, device=device, seed=number, strided=number % 3 == 1)
        try:
            out = attention_decode(*case.args, impl=impl, **case.options)
        except Unsupported as refusal:
            assert device == "cuda" and dtype == "float32"
            pytest.skip(str(refusal))
        assert wrong(out, case) is None, given
        assert torch.equal(out, attention_decode(*case.args, impl=impl, **case.options)), given


def test_one_token_without_options_is_the_plain_kernel():
    case = make((70, 0, 9), (4, 2), dtype="float32")
    plain = attention_decode(*case.args)
    for options in ({"window": 70}, {"sinks": torch.full((4,), -math.inf)}):
        assert torch.equal(attention_decode(*case.args, **options), plain)
    assert (attention_decode(*case.args, window=60) - plain)[0].abs().max() > 1e-3
    assert (attention_decode(*case.args, sinks=torch.ones(4)) - plain)[0].abs().max() > 1e-3


def test_each_token_is_a_step_of_its_own():
    case = make((40, 6), (4, 2), tokens=4, dtype="float32")
    q, k, v, lengths = case.args
    out = attention_decode(*case.args, window=9)
    for t in range(4):
        one = attention_decode(q[:, :, t : t + 1], k, v, lengths - 3 + t, window=9)
        torch.testing.assert_close(out[:, :, t : t + 1], one)


@pytest.mark.gpu
@pytest.mark.parametrize("impl", JOINING)
@pytest.mark.parametrize("few", (True, False))
def test_a_captured_graph_repeats_the_join(impl, few):
    lengths = (3000, 70, 0, 900) if few else (18000,)
    case = make(lengths, (8, 1), tokens=2, page=64, device="cuda")
    run = dict(impl=impl, **case.options)
    expected = attention_decode(*case.args, **run)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = attention_decode(*case.args, **run)
    for _ in range(20):
        out.fill_(math.nan)
        graph.replay()
        assert torch.equal(out, expected)


@pytest.mark.gpu
@pytest.mark.parametrize("impl", JOINING)
@pytest.mark.parametrize(("lengths", "heads"), [((5000, 40), (8, 2)), ((18000,), (8, 1))])
def test_two_streams_join_apart(impl, lengths, heads):
    cases = [make(lengths, heads, device="cuda", seed=seed) for seed in range(2)]
    expected = [attention_decode(*case.args, impl=impl) for case in cases]
    streams = [torch.cuda.Stream() for _ in cases]
    torch.cuda.synchronize()
    for _ in range(50):
        for case, stream, want in zip(cases, streams, expected):
            with torch.cuda.stream(stream):
                assert torch.equal(attention_decode(*case.args, impl=impl), want)


@pytest.mark.parametrize(
    "change, error, text",
    (
        ({"window": 0}, ValueError, "window is a number of keys, at least 1, or None, not 0"),
        ({"window": 2.5}, ValueError, "not 2.5"),
        ({"softcap": 0.0}, ValueError, "softcap is a finite number above 0"),
        ({"sinks": torch.zeros(3)}, ValueError, "one of each of the 4 query heads"),
        ({"block_table": [[0]]}, TypeError, "block_table is a tensor, not list"),
        ({"block_table": torch.zeros(2, 3)}, ValueError, r"int32 \(B, pages of a sequence\)"),
        ({"block_table": torch.zeros(3, 2, dtype=torch.int32).T}, ValueError, "side by side"),
        ({"impl": "v0_other"}, Unsupported, "no implementation 'v0_other'"),
    ),
)
def test_what_is_refused(change, error, text):
    case = make(**PAGED)
    with pytest.raises(error, match=text):
        attention_decode(*case.args, **case.options | change)


def test_pages_of_other_sizes_and_lengths_beyond_the_table_are_refused():
    case = make(**PAGED)
    q, k, v, lengths = case.args
    with pytest.raises(Unsupported, match="pages of 24 keys; multiples of 16"):
        attention_decode(q, k[:, :, :24], v[:, :, :24], lengths, **case.options)
    with pytest.raises(
        ValueError, match=r"lengths lie in 0 … 320, the keys of the cache; lengths\[0\] is 321"
    ):
        attention_decode(q, k, v, lengths + 121, **case.options)


@pytest.mark.slow
def test_compiled_and_as_an_operator():
    torch._dynamo.reset()
    case = make(**PAGED, sinks=True, dtype="float32")
    kernels.load("cpu", ("attention_decode",))
    compiled = torch.compile(
        lambda q: attention_decode(q, *case.args[1:], **case.options), fullgraph=True, backend="eager"
    )
    assert wrong(compiled(case.q), case) is None
    args = (*case.args, None, "cpu", *case.more)
    done = torch.library.opcheck(torch.ops.fusescope.attention_decode_general.default, args)
    assert set(done.values()) == {"SUCCESS"}
    with pytest.raises(RuntimeError, match="takes the name of a kernel"):
        torch.ops.fusescope.attention_decode_general(*case.args, None, "auto", *case.more)


def test_a_kernel_that_auto_leaves_out_is_chosen_where_nothing_else_takes_the_call(monkeypatch):
    def chosen(variants, general):
        monkeypatch.setattr(candidates, "built", lambda family, index: variants)
        facts = ("attention_decode", 0, torch.float16, 64, False, True, False, False)
        return next(v for v in VARIANTS if v.name == candidates.last_that_takes(*facts, general))

    hopper = tuple(v for v in VARIANTS if v.device == "cuda")
    older = tuple(v for v in hopper if "sm_80" in v.archs)
    assert chosen(older, True).not_auto and not chosen(older, False).not_auto
    assert chosen(hopper, True) == chosen(hopper, False) == hopper[-1]


def test_sources_say_which_kernels_take_it():
    for variant in VARIANTS:
        defined = "take_general(" in variant.path.read_text()
        assert defined == (variant.takes.scored or variant.device == "cpu"), variant.name
