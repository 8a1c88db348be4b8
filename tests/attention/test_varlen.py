"""Packed sequences: every kernel against float64, one sequence never sees another, what is refused, torch's
rules."""

from types import SimpleNamespace

import pytest
import torch

from fusescope import kernels, ops
from fusescope.core.errors import Unsupported
from fusescope.core.sources import families
from fusescope.ops.attention import attention_varlen
from fusescope.ops.attention.dispatch import candidates
from tests.attention import unseen, varlen_tools
from tests.attention.attention_tools import COMPILER
from tests.attention.varlen_tools import make, wrong

OP = ops.load("attention_varlen")
KERNELS = [
    pytest.param(v.name, v.device, marks=[pytest.mark.gpu] if v.device == "cuda" else [], id=v.name)
    for v in families()["attention_varlen"].variants
]
ON_GPU = [p for p in KERNELS if p.values[1] == "cuda"]
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
LENGTHS = (
    ((1,), (1,)),
    ((65, 0, 3, 130), (65, 0, 3, 130)),
    ((5, 70, 1, 0), (80, 20, 0, 9)),
    ((0, 64, 33), (9, 128, 65)),
    ((1,) * 40 + (200,), (2,) * 40 + (190,)),
    ((300,), (64,)),
    ((63, 64, 65, 127, 128, 129), (129, 128, 127, 65, 64, 63)),
)
SHAPES = (
    ((1, 1), 32),
    ((4, 2), 40),
    ((3, 1), 64),
    ((8, 8), 80),
    ((2, 1), 96),
    ((6, 3), 128),
    ((5, 1), 136),
    ((2, 2), 192),
    ((2, 1), 256),
)


def run(impl, case):
    return varlen_tools.call(case, impl)


@pytest.mark.slow
@pytest.mark.parametrize("causal", (False, True))
@pytest.mark.parametrize("dtype", OP.DTYPES)
@pytest.mark.parametrize("impl, device", KERNELS)
def test_kernels(impl, device, dtype, causal):
    judged = 0
    for number in range(max(len(LENGTHS), len(SHAPES)) if device == "cpu" else len(LENGTHS) * len(SHAPES)):
        (queries, keys), (heads, dim) = LENGTHS[number % len(LENGTHS)], SHAPES[number % len(SHAPES)]
        more, strided = (0, 5)[number % 2], number % 3 == 0
        case = make(queries, keys, dtype, heads, dim, causal, more, strided, device)
        try:
            out = run(impl, case)
        except Unsupported as refusal:
            assert device == "cuda", refusal
            continue
        assert wrong(out, case, dtype) is None, (queries, keys, heads, dim, more, strided)
        assert torch.equal(out, run(impl, case)), "a second call gives the same bits"
        judged += 1
    if not judged:
        pytest.skip(f"{impl} does not take {dtype}")


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ("float16", "bfloat16"))
@pytest.mark.parametrize("causal", (False, True))
@pytest.mark.parametrize("impl, device", ON_GPU)
def test_kernels_on_many_sequences(impl, device, causal, dtype):
    lengths = tuple(OP._lengths(OP.validate({"batch": 48, "seq": 1000})))
    for dim in (64, 128):
        case = make(lengths, lengths, dtype, (8, 4), dim, causal, device=device)
        assert wrong(run(impl, case), case, dtype) is None, dim


@pytest.mark.parametrize("impl, device", KERNELS)
def test_a_sequence_does_not_see_its_neighbours(impl, device):
    """Neither NaN nor infinities come through a weight of zero."""
    try:
        assert unseen.neighbours(lambda case: run(impl, case), {}, "float16", device) is None
    except Unsupported as refusal:
        pytest.skip(str(refusal))


def arguments(device="cpu", dtype="float32"):
    return make((7, 0, 3), (5, 2, 3), dtype, (4, 2), 64, device=device).args


@pytest.mark.parametrize("device", DEVICES)
def test_no_rows_at_all(device):
    q, k, v, cu_q, cu_k = arguments(device)
    nothing = torch.zeros_like(cu_q)
    assert attention_varlen(q[:0], k, v, nothing, cu_k).shape == (0, 4, 64)
    assert not attention_varlen(q, k[:0], v[:0], cu_q, nothing).any()
    assert not attention_varlen(q, k, v, nothing, nothing).any(), "rows of no sequence are zeros"


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ("float32", "float16"))
def test_wrong_offsets_touch_nothing_outside(device, dtype):
    q, k, v, cu_q, cu_k = arguments(device, dtype)
    for wild in ([0, 10**9, -5, 7], [5, 3, 2, 1], [-9, -9, 10**9, 10**9]):
        cu = torch.tensor(wild, dtype=torch.int32, device=device)
        attention_varlen(q, k, v, cu, cu, check=False)
    case = make((7, 0, 3), (5, 2, 3), dtype, (4, 2), 64, device=device)
    assert wrong(attention_varlen(q, k, v, cu_q, cu_k), case, dtype) is None


WRONG_OFFSETS = (
    ([0, 7, 5, 10], r"cu_seqlens_q\[2\] = 5 follows 7"),
    ([0, -1, 7, 10], r"cu_seqlens_q\[1\] = -1 follows 0"),
    ([0, 7, 7, 11], r"at most the 10 packed rows; cu_seqlens_q\[3\] is 11"),
    ([2, 7, 7, 10], r"cu_seqlens_q\[0\] is 2"),
)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("wild", "text"), WRONG_OFFSETS)
def test_offsets_that_break_the_rule_are_an_error(device, wild, text):
    """On request; where reading them waits for nothing always, also in a call whose like went well."""
    q, k, v, cu_q, cu_k = arguments(device)
    for cu in (cu_q, torch.tensor([0, 7, 7, 9], dtype=torch.int32, device=device)):
        attention_varlen(q, k, v, cu, cu_k, check=True)
        attention_varlen(q, k, v, cu, cu_k)
    cu = torch.tensor(wild, dtype=torch.int32, device=device)
    outside = torch.tensor([0, 99, 99, 99], dtype=torch.int32, device=device)
    for check in (None, True) if device == "cpu" else (True,):
        with pytest.raises(ValueError, match=text):
            attention_varlen(q, k, v, cu, cu_k, check=check)
        with pytest.raises(ValueError, match="cu_seqlens_k rises"):
            attention_varlen(q, k, v, cu_q, outside, check=check)
        with pytest.raises(TypeError, match=r"cu_seqlens_q is of int32, not torch\.int64"):
            attention_varlen(q, k, v, cu.long(), cu_k, check=check)
    with pytest.raises(TypeError, match="check is True, False or None"):
        attention_varlen(q, k, v, cu_q, cu_k, check="yes")


@pytest.mark.parametrize("device", DEVICES)
def test_opcheck_and_compile(device):
    kernels.load(device)
    torch._dynamo.reset()
    args = arguments(device)
    results = torch.library.opcheck(
        torch.ops.fusescope.attention_varlen.default, (*args, True, 0.125, OP.choose(*args[:3]))
    )
    assert set(results.values()) == {"SUCCESS"}
    compiled = torch.compile(
        lambda *t: attention_varlen(*t, causal=True) + 1, fullgraph=True, backend=COMPILER[device]
    )
    torch.testing.assert_close(compiled(*args), attention_varlen(*args, causal=True) + 1)
    half = arguments(device, "float16")  # on Hopper another kernel is chosen
    traced = torch.compile(lambda *t: attention_varlen(*t, causal=True), fullgraph=True, backend="eager")
    assert torch.equal(traced(*half), attention_varlen(*half, causal=True))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ("float32", "float16"))
def test_a_captured_graph_follows_the_lengths(dtype):
    q, k, v, cu_q, cu_k = arguments("cuda", dtype)
    attention_varlen(q, k, v, cu_q, cu_k)  # loads the library
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = attention_varlen(q, k, v, cu_q, cu_k)
    for given in ((0, 1, 10, 10), (0, 0, 0, 0), (0, 4, 5, 9)):
        cu_q.copy_(torch.tensor(given, dtype=torch.int32))
        graph.replay()
        assert torch.equal(out, attention_varlen(q, k, v, cu_q, cu_k))


@pytest.mark.gpu
@pytest.mark.parametrize("impl, device", ON_GPU)
def test_replays_on_two_streams_at_once_have_the_same_bits(impl, device):
    """More items than blocks, so that blocks that draw them do so again and again."""
    lengths = (900, 30, 700, 1300) * 8
    case = make(lengths, lengths, "float16", (8, 4), 64, True, device="cuda")
    expected = run(impl, case)
    graphs, outs, streams = [], [], [torch.cuda.Stream() for _ in "ab"]
    for stream in streams:
        with torch.cuda.stream(stream):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                outs.append(run(impl, case))
            graphs.append(graph)
    for _ in range(5):
        for out in outs:
            out.zero_()
        torch.cuda.synchronize()
        for stream, graph in zip(streams, graphs):
            with torch.cuda.stream(stream):
                graph.replay()
        torch.cuda.synchronize()
        assert all(torch.equal(out, expected) for out in outs)


@pytest.mark.gpu
def test_it_runs_on_the_current_stream_and_waits_for_nothing():
    q, k, v, cu_q, cu_k = arguments("cuda", "float16")
    expected = attention_varlen(q, k, v, cu_q, cu_k)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(100_000_000)
        later = q * 1
        torch.cuda.set_sync_debug_mode("error")
        try:
            out = attention_varlen(later, k, v, cu_q, cu_k)
            assert not stream.query(), "the call came back while the stream still slept"
        finally:
            torch.cuda.set_sync_debug_mode("default")
    stream.synchronize()
    assert torch.equal(out, expected)


REFUSED = [
    (lambda q, k, v, a, b: (q, k, v, [0, 1], b), TypeError, "cu_seqlens_q is a tensor, not list"),
    (
        lambda q, k, v, a, b: (q[None], k, v, a, b),
        ValueError,
        r"q is \(T_q, H, D\) and k, v are both \(T_k, H_kv, D\)",
    ),
    (lambda q, k, v, a, b: (q, k, v[:4], a, b), ValueError, r"q is \(T_q, H, D\) and k, v are both"),
    (
        lambda q, k, v, a, b: (q, k.half(), v, a, b),
        TypeError,
        "one dtype, not torch.float32, torch.float16 and torch.float32",
    ),
    (
        lambda q, k, v, a, b: (q.double(), k.double(), v.double(), a, b),
        Unsupported,
        "dtype torch.float64; float32, float16",
    ),
    (lambda q, k, v, a, b: (q, k, v, a.long(), b), TypeError, "cu_seqlens_q is of int32, not torch.int64"),
    (
        lambda q, k, v, a, b: (q, k, v, a, b[:1]),
        ValueError,
        r"cu_seqlens_k is contiguous, \(batch \+ 1,\) numbers",
    ),
    (lambda q, k, v, a, b: (q, k, v, a, b[:3]), ValueError, "have one length, not 4 and 3"),
    (
        lambda q, k, v, a, b: (q, k, v, a.to("meta"), b),
        ValueError,
        "on one device, not on cpu, cpu, cpu, meta, cpu",
    ),
    (
        lambda q, k, v, a, b: (q[:, :3], k, v, a, b),
        ValueError,
        "a multiple of that of KV heads; 3 is not one of 2",
    ),
    (
        lambda q, k, v, a, b: (q[..., :36], k[..., :36], v[..., :36], a, b),
        Unsupported,
        "head size 36; multiples of 8",
    ),
    (
        lambda q, k, v, a, b: (q.requires_grad_(), k, v, a, b),
        Unsupported,
        "forward only, but an input requires a gradient",
    ),
]


@pytest.mark.parametrize(("change", "error", "text"), REFUSED)
def test_what_is_refused(change, error, text):
    with pytest.raises(error, match=text):
        attention_varlen(*change(*arguments()))


def test_a_call_whose_like_went_well_is_checked_as_any_other():
    q, k, v, cu_q, cu_k = arguments()
    for causal in (False, True):
        first = attention_varlen(q, k, v, cu_q, cu_k, causal=causal)
        assert torch.equal(first, attention_varlen(q.clone(), k, v, cu_q, cu_k, causal=causal))
    half = attention_varlen(q, k, v, cu_q, cu_k, scale=torch.tensor(0.5))
    assert torch.equal(half, attention_varlen(q, k, v, cu_q, cu_k, scale=0.5))
    assert not torch.equal(half, attention_varlen(q, k, v, cu_q, cu_k, scale=torch.tensor(0.25)))
    with pytest.raises(TypeError, match="causal is True or False, not 0"):
        attention_varlen(q, k, v, cu_q, cu_k, causal=0)
    with pytest.raises(Unsupported, match="forward only"):
        attention_varlen(q.requires_grad_(), k, v, cu_q, cu_k)
    with torch.no_grad():
        attention_varlen(q, k, v, cu_q, cu_k)


def test_causal_is_a_bool_and_kernels_have_names():
    with pytest.raises(TypeError, match="causal is True or False, not 1"):
        attention_varlen(*arguments(), causal=1)
    with pytest.raises(Unsupported, match="no implementation 'v9_none'"):
        attention_varlen(*arguments(), impl="v9_none")


@pytest.mark.parametrize("impl", ("eager", "sdpa", "sdpa_flash", "sdpa_nested", "cpu"))
@pytest.mark.parametrize(
    "values",
    (
        {"lengths": "drawn"},
        {"lengths": "9+40", "causal": "yes", "kv_heads": 1},
        {"lengths": "full"},
        {"left": 5, "right": 3},
        {"left": 9, "causal": "yes", "lengths": "9+40", "kv_heads": 1},
        {"right": 2, "lengths": "0+40"},
        {"left": 0, "right": 0},
    ),
)
def test_peers_compute_the_same(impl, values):
    from fusescope.measure.checking.check import Case

    case = Case(
        OP,
        OP.validate({"batch": 2, "heads": 2, "seq": 40, "head_dim": 32} | values),
        "float32",
        "cpu",
        seed=0,
    )
    try:
        run = ops.make("attention_varlen", impl, case.inputs)
    except Unsupported as refusal:
        assert impl in ("sdpa_nested", "sdpa_flash"), refusal
        pytest.skip(str(refusal))
    assert case.verify(run).reason is None


@pytest.mark.parametrize(
    "rows, head_dim, taken",
    [(1408, 64, "v4_persistent"), (1407, 64, "v3_hopper"), (10**6, 136, "v3_hopper")],
)
def test_auto_counts_rows(rows, head_dim, taken, monkeypatch):
    """132 multiprocessors have 128 rows each from 1408 rows of 12 heads on."""
    kernels = tuple(v for v in families()["attention_varlen"].variants if v.device == "cuda")
    monkeypatch.setattr(candidates, "built", lambda family, index: kernels)
    gpu = SimpleNamespace(multi_processor_count=132)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: gpu)
    monkeypatch.setattr(candidates, "tma_takes", lambda t: True)
    shape = (rows, 12, head_dim)
    q = SimpleNamespace(device=torch.device("cuda", 0), dtype=torch.float16, shape=shape)
    assert OP.choose(q, q, q) == taken
