"""A step of decoding that writes the new token's key and value: the bits of the two calls, in the caches
too."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from fusescope import kernels
from fusescope.core.errors import Unsupported
from fusescope.core.sources import families
from fusescope.ops.attention import attention_decode, attention_decode_step
from fusescope.ops.attention.dispatch import candidates
from fusescope.ops.attention.step import _choose
from fusescope.ops.layer.linear import linear
from fusescope.ops.layer.rope_cache import rope_cache
from tests.attention.attention_tools import COMPILER
from tests.attention.step_tools import CASES, ROPE_CACHE, far, make, rope_operands, same, wrong, wrong_write

VARIANTS = families()["attention_decode"].variants
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
DTYPES = ("float32", "float16", "bfloat16")
TAKES = [v.name for v in VARIANTS if v.takes.new_token]


def two_calls(given, **how):
    q, *caches = rope_cache(*rope_operands(given), places=given["places"], **how)
    how["block_table"] = given["block_table"]
    return attention_decode(q.transpose(1, 2), *caches, given["lengths"], **how).transpose(1, 2)


def differs(case, **how):
    """What is not as the two calls leave it, or None."""
    one, other = case.copy(), case.copy()
    if one.given["q"].is_cuda:
        torch.cuda.synchronize()  # the copies are what the last kernel wrote
    out = attention_decode_step(**one.given, check=False, **how)
    expected = two_calls(other.given, check=False)
    if not all(same(*pair) for pair in zip(one.around, other.around)):
        return "the caches"
    if not out.is_contiguous() or out.shape != case.given["q"].shape:
        return "its form"
    return None if same(out, expected) else "the result"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("device", DEVICES)
def test_it_is_the_two_calls(device, dtype):
    for number, given in enumerate(CASES):
        for strided in (False, True):
            case = make(**given, dtype=dtype, device=device, seed=number, strided=strided)
            if device == "cuda" and dtype == "float32" and case.given["block_table"] is not None:
                for run in (two_calls, lambda g, **how: attention_decode_step(**g, **how)):
                    with pytest.raises(Unsupported, match=r"no kernel for this GPU that takes .*float32"):
                        run(case.copy().given, check=False)
                continue
            assert differs(case, settled=bool(number % 2)) is None, (given, strided)
            assert far(case, attention_decode_step(**case.copy().given, check=False)) is None, given


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES[1:])
@pytest.mark.parametrize("impl", TAKES)
def test_one_launch_is_what_is_specified(impl, dtype):
    def attend(q, given):
        caches = given["k_cache"], given["v_cache"], given["lengths"]
        return attention_decode(q, *caches, impl=impl, check=False, block_table=given["block_table"])

    def step(given):
        return attention_decode_step(**given, impl=impl, check=False)

    for number, given in enumerate(CASES):
        case = make(**given, dtype=dtype, device="cuda", seed=number)
        assert far(case, step(case.copy().given)) is None, given
        assert wrong_write(case, ROPE_CACHE) is None, given
        assert wrong(case, step, attend) is None, given
        assert differs(case, impl=impl, settled=bool(number % 2)) is None, given


@pytest.mark.gpu
@pytest.mark.parametrize("heads, dim, rotary", [((12, 12), 64, 0), ((32, 8), 128, 128)])
def test_a_captured_chain_of_products_and_settled_steps_follows_its_lengths(heads, dim, rotary):
    """Layers whose steps begin before the product in front of them ends, token after token."""
    torch.manual_seed(0)
    (h, kv), width, layers, batch = heads, heads[0] * dim, 6, 2
    case = make((9, 14), heads, dim, rotary, device="cuda", places=(8, 13))
    caches = torch.zeros(2, layers, 2, batch, kv, 64, dim, device="cuda", dtype=torch.float16)
    weights = [
        tuple(torch.randn(n, width, device="cuda").half() / width**0.5 for n in ((h + 2 * kv) * dim, width))
        for _ in range(layers)
    ]
    x = torch.randn(batch, 1, width, device="cuda").half()
    lengths = torch.zeros(batch, device="cuda", dtype=torch.int32)
    angles = case.given["cos_sin"]

    def token(attend, caches):
        y, places = x, lengths - 1
        for (qkv, output), pair in zip(weights, caches):
            parts = linear(y, qkv, settled=True).unflatten(-1, (-1, dim)).split((h, kv, kv), 2)
            given = dict(zip(("q", "k", "v"), parts), cos_sin=angles, positions=places, places=None)
            given |= {"k_cache": pair[0], "v_cache": pair[1], "lengths": lengths, "block_table": None}
            y = linear(attend(given).flatten(-2), output, settled=True)
        return y

    def settled(given):
        return attention_decode_step(**given, settled=True, check=False, impl=TAKES[-1])

    lengths.fill_(1)
    token(settled, caches[0])
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = token(settled, caches[0])
    caches.zero_()
    for count in range(1, 60):
        lengths.fill_(count)
        graph.replay()
        assert torch.equal(out, token(lambda given: two_calls(given, check=False), caches[1])), count
    assert torch.equal(caches[0], caches[1])


def test_one_launch_is_chosen_where_a_kernel_for_the_gpu_takes_the_token(monkeypatch):

    def chosen(dtype, head_dim, variants):
        monkeypatch.setattr(candidates, "built", lambda family, index: tuple(variants))
        return candidates.that_takes_a_new_token(0, dtype, head_dim)

    hopper = [v for v in VARIANTS if v.device == "cuda"]
    assert chosen(torch.float16, 64, hopper) == TAKES[-1]
    for case in ((torch.float32, 64), (torch.float16, 136)):
        assert chosen(*case, hopper) is None
    assert chosen(torch.float16, 64, [v for v in hopper if "sm_80" in v.archs]) is None


class OnAGpu:
    """A tensor that says it lies on a GPU."""

    device = torch.device("cuda", 0)

    def __init__(self, t):
        self.t = t

    def __getattr__(self, name):
        return getattr(self.t, name)


@pytest.mark.parametrize(
    "change, kernel",
    (
        ({}, TAKES[-1]),
        ({"dtype": "float32"}, None),
        ({"dtype": "float32", "page": 32}, None),
        ({"dim": 136}, None),
        ({"rotary": 24}, None),
        ({"lengths": (17, 5)}, TAKES[-1]),
        ({"lengths": (500,)}, TAKES[-1]),
        ({"lengths": (600, 5)}, None),
        ({"lengths": (600,) * 48}, TAKES[-1]),
        ({"lengths": (900,), "page": 64}, TAKES[-1]),
        ({"lengths": (1100,), "page": 64}, None),
    ),
)
def test_auto_makes_two_calls_unless_one_launch_takes_the_token_and_saves_time(monkeypatch, change, kernel):
    hopper = tuple(v for v in VARIANTS if v.device == "cuda")
    monkeypatch.setattr(candidates, "built", lambda family, index: hopper)
    given = make(**{"lengths": (17,), "heads": (4, 2)} | change).given
    named = {name: OnAGpu(given[name]) for name in ("q", "k", "v", "k_cache", "v_cache")}
    assert _choose(**named, cos_sin=given["cos_sin"], block_table=given["block_table"]) == kernel


@pytest.mark.parametrize("device", DEVICES)
def test_compiled_it_writes_the_caches_too(device):
    kernels.load(device, ("attention_decode", "rope_cache"))
    torch._dynamo.reset()
    case = make((17, 5), (4, 2), rotary=64, device=device)
    found, right = case.copy(), case.copy()

    def step(given):
        return attention_decode_step(**given, check=False) + 1

    compiled = torch.compile(step, fullgraph=True, backend=COMPILER[device])
    assert same(compiled(found.given), step(right.given))
    assert all(same(*pair) for pair in zip(found.around, right.around))
    if device == "cuda":
        names = (
            "q",
            "k",
            "v",
            "cos_sin",
            "positions",
            "places",
            "k_cache",
            "v_cache",
            "block_table",
            "lengths",
        )
        args = (*(case.given[name] for name in names), None, True, TAKES[-1])
        done = torch.library.opcheck(torch.ops.fusescope.attention_decode_step.default, args)
        assert set(done.values()) == {"SUCCESS"}


def test_the_operator_says_shape_and_device_of_its_result():
    kernels.load("cpu", ("attention_decode",))
    with FakeTensorMode():
        q, k = torch.empty(2, 1, 4, 64), torch.empty(2, 1, 2, 64)
        caches = [torch.empty(2, 2, 9, 64) for _ in "kv"]
        counts = torch.empty(2, dtype=torch.int32)
        run = torch.ops.fusescope.attention_decode_step
        out = run(q, k, k, None, counts, None, *caches, None, counts, None, False, "cpu")
    assert out.shape == q.shape and out.device == q.device and out.dtype == q.dtype


PLAIN = {"lengths": (17, 5), "heads": (4, 2), "dtype": "float32", "rotary": 64}


@pytest.mark.parametrize(
    "change, error, text",
    (
        (
            {"q": torch.ones(2, 2, 4, 64), **dict.fromkeys("kv", torch.ones(2, 2, 2, 64))},
            ValueError,
            "one new token",
        ),
        ({"k": torch.ones(2, 1, 4, 64)}, ValueError, r"k, v \(B, S, H_kv, D\)"),
        ({"cos_sin": torch.ones(40, 66)}, ValueError, "at most D = 64"),
        ({"positions": torch.tensor([[16, 4]])}, ValueError, r"positions is \(B, S\)"),
        ({"places": torch.tensor([16.0, 4])}, TypeError, "places is an int32 or int64 tensor"),
        ({"places": torch.tensor([16, 48])}, ValueError, "places lie in 0 … 47"),
        ({"positions": torch.tensor([16, 300])}, ValueError, "positions lie in 0 … 255"),
        ({"lengths": torch.tensor([49, 5], dtype=torch.int32)}, ValueError, "lengths lie in 0 … 48"),
        ({"lengths": torch.tensor([17, 5])}, TypeError, "lengths is of int32"),
        ({"k_scale": torch.ones(2)}, TypeError, "takes float8_e4m3fn"),
        ({"scale": "much"}, TypeError, "scale is a number"),
        ({"impl": 4}, TypeError, 'the name of a kernel or "auto"'),
        ({"impl": "v9_none"}, Unsupported, "no implementation 'v9_none'"),
        ({"impl": "cpu"}, Unsupported, r"in the launch of attention \(v4_cluster takes them\)"),
        ({"v": torch.ones(2, 1, 2, 64, requires_grad=True)}, Unsupported, "forward only"),
    ),
)
def test_what_is_refused(change, error, text):
    """By the name of a kernel as by the two calls."""
    given = make(**PLAIN).given | change
    names = ("auto", "cpu") if "impl" not in change else (change["impl"],)
    for impl in names:
        with pytest.raises(error, match=text):
            attention_decode_step(**given | {"impl": impl})


def test_a_named_kernel_refuses_heads_that_are_not_dense_and_an_fp8_cache():
    given = make(**PLAIN).given
    heads = given["v"].mT.contiguous().mT
    assert not heads.is_contiguous()
    with pytest.raises(ValueError, match="the elements of a head of q, k and v lie side by side"):
        attention_decode_step(**given | {"v": heads, "impl": "cpu"})
    assert differs(make(**PLAIN)) is None
    caches = {name: given[name].to(torch.float8_e4m3fn) for name in ("k_cache", "v_cache")}
    fp8 = given | caches | {"k_scale": torch.ones(2), "v_scale": torch.ones(2)}
    with pytest.raises(Unsupported, match="float8_e4m3fn in one launch"):
        attention_decode_step(**fp8, impl="v4_cluster")
    copies = {name: t.clone() for name, t in caches.items()}
    scales = {name: torch.ones(2) for name in ("k_scale", "v_scale")}
    assert torch.equal(attention_decode_step(**fp8), two_calls(given | copies, **scales))
    assert all(torch.equal(caches[n].view(torch.uint8), copies[n].view(torch.uint8)) for n in caches)


@pytest.mark.gpu
@pytest.mark.parametrize("impl", [v.name for v in VARIANTS if v.device == "cuda" and not v.takes.new_token])
def test_other_kernels_refuse_a_new_token(impl):
    case = make((17, 5), (4, 2), device="cuda")
    with pytest.raises(Unsupported, match=r"in the launch of attention \(v4_cluster takes them\)"):
        attention_decode_step(**case.given, impl=impl)


@pytest.mark.parametrize(
    "change, text",
    (
        ({"q": torch.ones(2, 2, 4, 64)}, r"q is \(B, 1, H, D\): one new token"),
        ({"k": torch.ones(2, 1, 4, 64)}, r"k and v are \(B, 1, H_kv, D\)"),
        ({"v": torch.ones(2, 1, 2, 64).half()}, "k and v are"),
        ({"q": torch.ones(2, 1, 64, 4).mT}, "elements of a head of q"),
        ({"cos_sin": torch.ones(40, 66)}, "R even and at most D"),
        ({"cos_sin": torch.ones(2, 2, 64)}, r"cos_sin is dense float32, \(positions, R\) or \(B, 1, R\)"),
        ({"positions": torch.ones(2)}, r"positions is int32 or int64, \(B,\) or \(B, 1\)"),
        ({"places": torch.ones(3, dtype=torch.int64)}, "places is int32"),
        ({"lengths": torch.ones(2, dtype=torch.int64)}, "lengths is a contiguous int32 tensor"),
        ({"k_cache": torch.ones(2, 2, 48, 64).half()}, "the caches are"),
        ({"block_table": torch.ones(2, 3)}, "block_table is int32"),
        ({"impl": "auto"}, "takes the name of a kernel, not auto"),
    ),
)
def test_the_operator_itself_checks_what_it_is_given(change, text):
    kernels.load("cpu", ("attention_decode",))
    given = make(**PLAIN).given | {"impl": "cpu"} | change
    names = "q", "k", "v", "cos_sin", "positions", "places", "k_cache", "v_cache", "block_table", "lengths"
    with pytest.raises(RuntimeError, match=text):
        torch.ops.fusescope.attention_decode_step(*(given[n] for n in names), None, False, given["impl"])
