"""Decoding over a padded cache: every kernel against float64, nothing read beyond the lengths, what is
refused, torch's rules."""

import math

import pytest
import torch

from fusescope import kernels, ops
from fusescope.core.errors import Unsupported
from fusescope.core.sources import families
from fusescope.measure.checking.check import Case, compare
from fusescope.ops.attention import attention_decode
from fusescope.ops.attention.describe.decode import lengths as lengths_of
from tests.attention.attention_tools import COMPILER

OP = ops.load("attention_decode")
KERNELS = [
    pytest.param(v.name, v.device, marks=[pytest.mark.gpu] if v.device == "cuda" else [], id=v.name)
    for v in families()["attention_decode"].variants
]
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
CASES = [
    {"batch": 2, "heads": h, "kv_heads": kv, "seq_max": s, "head_dim": d, "lengths": text}
    for (h, kv), s, d, text in (
        ((1, 1), 1, 32, "full"),
        ((4, 4), 63, 40, "drawn"),
        ((8, 2), 65, 64, "0+65"),
        ((6, 2), 1000, 80, "drawn"),
        ((12, 1), 513, 96, "512+513"),
        ((32, 8), 700, 128, "full"),
        ((20, 1), 300, 136, "1+0"),
        ((17, 1), 130, 192, "130+64"),
        ((4, 2), 129, 256, "drawn"),
    )
]


def wrong(values, dtype, device, impl, contiguous):
    """What is wrong with a kernel on a case whose cache is NaN beyond the lengths, or None."""
    values = OP.validate(values)
    inputs = OP.inputs(values, dtype, device, 0, contiguous)
    reference = OP.reference(inputs)
    for i, n in enumerate(inputs["lengths"].tolist()):
        inputs["k"][i, :, n:] = math.nan
        inputs["v"][i, :, n:] = math.nan
    out = OP.call(inputs, impl)
    assert out.shape == reference.shape and out.is_contiguous()
    assert torch.equal(out, OP.call(inputs, impl)), "a second call gives the same bits"
    return compare(out, reference, OP.tolerance(values, dtype)).reason


@pytest.mark.slow
@pytest.mark.parametrize("dtype", OP.DTYPES)
@pytest.mark.parametrize("impl, device", KERNELS)
def test_kernels(impl, device, dtype):
    for values in CASES:
        for contiguous in (True, False):
            try:
                assert wrong(values, dtype, device, impl, contiguous) is None, values
            except Unsupported as refusal:
                assert device == "cuda"
                pytest.skip(str(refusal))


@pytest.mark.gpu
@pytest.mark.parametrize("impl, device", [p for p in KERNELS if p.values[1] == "cuda"])
def test_kernels_on_many_blocks(impl, device):
    for values in (
        {"batch": 1, "heads": 32, "kv_heads": 8, "seq_max": 40000},
        {"batch": 300, "heads": 4, "kv_heads": 2, "seq_max": 200, "head_dim": 64, "lengths": "drawn"},
        {"batch": 16, "heads": 32, "kv_heads": 8, "seq_max": 8192, "lengths": "drawn"},
    ):
        assert wrong(values, "float16", device, impl, True) is None, values


def make(device="cpu", dtype=torch.float32, lengths=(7, 0)):
    generator = torch.Generator(device=device).manual_seed(0)
    q, k, v = (
        torch.randn(shape, generator=generator, device=device).to(dtype)
        for shape in ((2, 4, 1, 64), (2, 2, 9, 64), (2, 2, 9, 64))
    )
    return q, k, v, torch.tensor(lengths, dtype=torch.int32, device=device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("wild", [(10, 0), (3, -1)])
def test_lengths_outside_the_cache_are_an_error(device, wild):
    """On request; where reading them waits for nothing always, also in a call whose like went well."""
    q, k, v, lengths = make(device)
    for check in (True, None, False):
        attention_decode(q, k, v, lengths, check=check)
    outside = torch.tensor(wild, dtype=torch.int32, device=device)
    for check in (None, True) if device == "cpu" else (True,):
        with pytest.raises(
            ValueError, match=r"lengths lie in 0 … 9, the keys of the cache; lengths\[\d\] is"
        ):
            attention_decode(q, k, v, outside, check=check)
        with pytest.raises(TypeError, match=r"lengths is of int32, not torch\.int64"):
            attention_decode(q, k, v, outside.long(), check=check)


@pytest.mark.parametrize("device", DEVICES)
def test_unchecked_lengths_outside_the_cache_are_taken_as_the_bounds(device):
    q, k, v, _ = make(device)
    expected = attention_decode(q, k, v, torch.tensor([9, 0], dtype=torch.int32, device=device))
    assert torch.equal(
        attention_decode(q, k, v, torch.tensor([10**9, -3], dtype=torch.int32, device=device), check=False),
        expected,
    )
    assert not expected[1].any()


@pytest.mark.parametrize("device", DEVICES)
def test_opcheck_and_compile(device):
    kernels.load(device)
    torch._dynamo.reset()
    q, k, v, lengths = make(device)
    results = torch.library.opcheck(
        torch.ops.fusescope.attention_decode.default, (q, k, v, lengths, 0.125, OP.choose(q))
    )
    assert set(results.values()) == {"SUCCESS"}
    compiled = torch.compile(lambda *t: attention_decode(*t) + 1, fullgraph=True, backend=COMPILER[device])
    torch.testing.assert_close(compiled(q, k, v, lengths), attention_decode(q, k, v, lengths) + 1)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", (torch.float32, torch.float16))
def test_a_captured_graph_follows_the_lengths(dtype):
    q, k, v, lengths = make("cuda", dtype)
    attention_decode(q, k, v, lengths)  # loads the library
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = attention_decode(q, k, v, lengths)
    for given in ((3, 9), (0, 0), (9, 1)):
        lengths.copy_(torch.tensor(given, dtype=torch.int32))
        graph.replay()
        assert torch.equal(out, attention_decode(q, k, v, lengths))


@pytest.mark.gpu
def test_it_runs_on_the_current_stream_and_waits_for_nothing():
    q, k, v, lengths = make("cuda", torch.float16)
    # Loading a kernel at its first use may wait for the kernels that run.
    expected = attention_decode(torch.cat([q, q])[:2], k, v, lengths)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(100_000_000)
        doubled = torch.cat([q, q])[:2]
        torch.cuda.set_sync_debug_mode("error")
        try:
            out = attention_decode(doubled, k, v, lengths)
            assert not stream.query(), "the call came back while the stream still slept"
        finally:
            torch.cuda.set_sync_debug_mode("default")
    stream.synchronize()
    assert torch.equal(out, expected)


REFUSED = [
    (lambda q, k, v, n: (q, k, v, [7, 0]), TypeError, "lengths is a tensor, not list"),
    (
        lambda q, k, v, n: (q.expand(2, 4, 9, 64), k, v, n),
        ValueError,
        r"q is \(B, H, T, D\), one to 8 new queries a sequence; its shape is",
    ),
    (
        lambda q, k, v, n: (q, k, v[:, :, :8], n),
        ValueError,
        r"one shape \(B, H_kv, S_max, D\) with q's batch and head size",
    ),
    (
        lambda q, k, v, n: (q, k.half(), v, n),
        TypeError,
        "one dtype, not torch.float32, torch.float16 and torch.float32",
    ),
    (
        lambda q, k, v, n: (q.double(), k.double(), v.double(), n),
        Unsupported,
        "dtype torch.float64; float32, float16",
    ),
    (lambda q, k, v, n: (q, k, v, n.long()), TypeError, "lengths is of int32, not torch.int64"),
    (
        lambda q, k, v, n: (q, k, v, n[:1]),
        ValueError,
        r"one number for each of the 2 sequences; its shape is \(1,\)",
    ),
    (
        lambda q, k, v, n: (q, k, v, n.to("meta")),
        ValueError,
        "all tensors lie on one device, not on cpu, cpu, cpu and meta",
    ),
    (lambda q, k, v, n: (q, k[:, :, :0], v[:, :, :0], n), ValueError, "every size is at least 1"),
    (lambda q, k, v, n: (q[:, :3], k, v, n), ValueError, "a multiple of that of KV heads; 3 is not one of 2"),
    (
        lambda q, k, v, n: (q[..., :36], k[..., :36], v[..., :36], n),
        Unsupported,
        "head size 36; multiples of 8 from 32 to 256",
    ),
    (
        lambda q, k, v, n: (q.requires_grad_(), k, v, n),
        Unsupported,
        "forward only, but an input requires a gradient",
    ),
]


@pytest.mark.parametrize(("change", "error", "text"), REFUSED)
def test_what_is_refused(change, error, text):
    with pytest.raises(error, match=text):
        attention_decode(*change(*make()))


def test_the_operator_itself_checks_what_it_is_given():
    q, k, v, lengths = make()
    attention_decode(q, k, v, lengths)
    for change, text in (
        ((q, k, v, lengths[:1]), "lengths is a contiguous int32 tensor"),
        ((q, k, v, lengths.long()), "lengths is a contiguous int32 tensor"),
        ((q, k, v[:, :, :8], lengths), "the caches are"),
        ((q[..., :36], k[..., :36], v[..., :36], lengths), "unsupported: head_dim 36"),
        ((q.expand(2, 4, 3, 64), k, v, lengths), "one new query a sequence"),
    ):
        with pytest.raises(RuntimeError, match=text):
            torch.ops.fusescope.attention_decode(*change, 1.0, "cpu")


@pytest.mark.parametrize("impl", ("eager", "sdpa", "sdpa_grouped", "sdpa_flash"))
@pytest.mark.parametrize("lengths", ("full", "30+0"))
def test_peers_compute_the_same(impl, lengths):
    values = OP.validate(
        {"batch": 2, "heads": 4, "kv_heads": 2, "seq_max": 30, "head_dim": 32, "lengths": lengths}
    )
    case = Case(OP, values, "float32", "cpu", seed=0)
    assert case.verify(ops.make("attention_decode", impl, case.inputs)).reason is None


def test_lengths_of_a_case():
    drawn = lengths_of(OP.validate({"batch": 16, "seq_max": 1000, "lengths": "drawn"}))
    assert max(drawn) == 1000 and min(drawn) == 200 and abs(sum(drawn) / 16 - 600) < 1
    for text, said in (
        ("3+5", "one length for each of 16"),
        ("often", "full, drawn, or integers"),
        ("2000" + "+1" * 15, "from 0 to 1,000"),
    ):
        with pytest.raises(ValueError, match=said):
            OP.validate({"batch": 16, "seq_max": 1000, "lengths": text})
