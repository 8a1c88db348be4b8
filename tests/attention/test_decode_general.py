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
    takes = families()["attention_decode"].variant(impl).takes
    for number, given in enumerate(CASES):
        case = make(**given, dtype=dtype, device=device, seed=number, strided=number % 3 == 1)
        try:
            out = attention_decode(*case.args, impl=impl, **case.options)
        except Unsupported:
            assert device == "cuda" and (dtype == "float32" or not takes.has_head_dim(case.q.shape[3]))
            continue
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


FP8 = {"lengths": (70, 9), "heads": (4, 2), "fp8": True}


@pytest.mark.parametrize(
    "change, error, text",
    (
        ({"k_scale": None}, ValueError, "needs k_scale and v_scale; k_scale is None"),
        ({"k_scale": None, "v_scale": None}, ValueError, "needs k_scale and v_scale; k_scale is None"),
        ({"v_scale": 0.5}, TypeError, "v_scale is a tensor, not float"),
        ({"v_scale": torch.ones(4)}, ValueError, r"one of each of the 2 KV heads; this one is .* \(4,\)"),
        ({"k_scale": torch.ones(2).half()}, ValueError, "contiguous float32, .* is torch.float16"),
        ({"k_scale": torch.ones(4)[::2]}, ValueError, "k_scale is contiguous float32"),
        ({"k_scale": torch.ones(2, device="meta")}, ValueError, "k_scale is on q's device cpu, not on meta"),
        ({"k_scale": torch.tensor([1.0, 0.0])}, ValueError, "k_scale holds positive finite numbers, not 0"),
        ({"v_scale": torch.tensor([math.nan, 1.0])}, ValueError, "v_scale holds positive .*, not nan"),
    ),
)
def test_scales_that_do_not_fit_are_refused(change, error, text):
    case = make(**FP8)
    with pytest.raises(error, match=text):
        attention_decode(*case.args, **case.options | change)


def test_caches_of_other_dtypes_than_the_scales_say_are_refused():
    case = make(**FP8)
    q, k, v, lengths = case.args
    for caches in ((k.half(), v.half()), (k, v.half()), (k.view(torch.float8_e5m2),) * 2):
        with pytest.raises(TypeError, match="k_scale and v_scale belong to a cache of torch"):
            attention_decode(q, *caches, lengths, **case.options)
    with pytest.raises(Unsupported, match="float8_e4m3fn; float32, float16 and bfloat16 are"):
        attention_decode(q.to(k.dtype), k, v, lengths, **case.options)
    attention_decode(*case.args, **case.options | {"k_scale": -case.options["k_scale"]}, check=False)
    run = torch.ops.fusescope.attention_decode_general
    for given, more, text in (
        ((q, k, v), (None, None), "k_scale and v_scale of a float8_e4m3fn cache are float32"),
        ((q, k, v), (torch.ones(2), torch.ones(3)), "k_scale and v_scale of a float8_e4m3fn cache"),
        ((q, k.half(), v.half()), (torch.ones(2),) * 2, "belong to a cache of float8_e4m3fn"),
        ((q, k, v.half()), (torch.ones(2),) * 2, "the caches are"),
    ):
        with pytest.raises(RuntimeError, match=text):
            run(*given, lengths, None, "cpu", None, 0, None, None, *more)
    with pytest.raises(RuntimeError, match="the caches are"):
        torch.ops.fusescope.attention_decode(q, k, v, lengths, None, "cpu")


@pytest.mark.gpu
@pytest.mark.parametrize("impl", [v.name for v in VARIANTS if v.device == "cuda" and not v.takes.fp8_cache])
def test_other_kernels_refuse_an_fp8_cache(impl):
    case = make(**FP8, device="cuda")
    with pytest.raises(Unsupported, match=r"float8_e4m3fn \(the CPU kernel and v4_cluster take it"):
        attention_decode(*case.args, impl=impl, **case.options)


@pytest.mark.gpu
def test_a_captured_graph_follows_the_scales():
    case = make((3000, 70), (8, 2), fp8=True, device="cuda")
    expected = [attention_decode(*case.args, **case.options)]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = attention_decode(*case.args, **case.options)
    case.options["v_scale"].mul_(2)
    expected.append(attention_decode(*case.args, **case.options))
    graph.replay()
    assert torch.equal(out, expected[1])
    torch.testing.assert_close(out, 2 * expected[0], rtol=0, atol=2.0**-24)  # numbers below 2^-14 are rounded


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
    fp8 = make(**FP8, dtype="float32")
    args = (*fp8.args, None, "cpu", *fp8.more)
    which = ("test_faketensor",)  # the others compute with float8_e4m3fn
    done = torch.library.opcheck(torch.ops.fusescope.attention_decode_general.default, args, test_utils=which)
    assert set(done.values()) == {"SUCCESS"}
    compiled = torch.compile(
        lambda q: attention_decode(q, *fp8.args[1:], **fp8.options), fullgraph=True, backend="eager"
    )
    assert wrong(compiled(fp8.q), fp8) is None
    with pytest.raises(RuntimeError, match="takes the name of a kernel"):
        torch.ops.fusescope.attention_decode_general(*case.args, None, "auto", *case.more)


def test_a_kernel_that_auto_leaves_out_is_chosen_where_nothing_else_takes_the_call(monkeypatch):
    def chosen(variants, general, head_dim=64):
        monkeypatch.setattr(candidates, "built", lambda family, index: variants)
        facts = ("attention_decode", 0, torch.float16, head_dim, False, True, False, False)
        return next(v for v in VARIANTS if v.name == candidates.last_that_takes(*facts, general))

    hopper = tuple(v for v in VARIANTS if v.device == "cuda")
    older = tuple(v for v in hopper if "sm_80" in v.archs)
    assert chosen(older, True).not_auto and not chosen(older, False).not_auto
    assert chosen(hopper, True) == chosen(hopper, False) == hopper[-1]
    wide = [chosen(hopper, general, 256) for general in (True, False)]
    assert wide[0].takes.scored and not wide[1].not_auto


def test_sources_say_which_kernels_take_it():
    for variant in VARIANTS:
        text = variant.path.read_text()
        for word, says in (("take_general(", variant.takes.scored), ("scales_of(", variant.takes.fp8_cache)):
            assert (word in text) == (says or variant.device == "cpu"), (variant.name, word)
        assert ("take_new(" in text) == variant.takes.new_token
        assert ("take_bias(" in text) == ("take_general(" in text)
