"""Packed sequences within a sliding window: every kernel against float64, what is the same as none or causal,
what is refused, cases and peers."""

from itertools import product

import pytest
import torch

from fusescope import kernels, ops
from fusescope.core import directives
from fusescope.core.errors import Unsupported
from fusescope.core.sources import families
from fusescope.ops.attention import attention_varlen
from fusescope.ops.attention.describe import window as windows
from tests.attention.attention_tools import COMPILER, skip_unsupported
from tests.attention.varlen_tools import call, make, wrong

OP = ops.load("attention_varlen")
KERNELS = [
    pytest.param(v.name, v.device, marks=[pytest.mark.gpu] if v.device == "cuda" else [], id=v.name)
    for v in families()["attention_varlen"].variants
]
LENGTHS = (
    ((1, 0, 2), (1, 3, 0)),
    ((65, 0, 3, 130), (65, 0, 3, 130)),
    ((5, 70, 1, 0), (80, 20, 0, 9)),
    ((300, 40), (64, 40)),
    ((1,) * 40 + (200,), (2,) * 40 + (190,)),
    ((63, 64, 65, 127, 128, 129), (129, 128, 127, 65, 64, 63)),
    ((640, 333), (640, 333)),
)
WINDOWS = ((0, 0), (5, -1), (-1, 7), (63, 0), (64, 64), (127, 128), (200, 3), (1, 500), (1 << 30, 2))
SHAPES = (((4, 2), 40), ((3, 1), 64), ((2, 1), 96), ((6, 3), 128), ((2, 1), 136), ((2, 2), 256))


@pytest.mark.parametrize("causal", (False, True))
@pytest.mark.parametrize("dtype", OP.DTYPES)
@pytest.mark.parametrize("impl, device", KERNELS)
def test_kernels(impl, device, dtype, causal):
    """On a CPU every second pair of lengths and window."""
    for number, ((queries, keys), window) in enumerate(product(LENGTHS, WINDOWS)):
        if device == "cpu" and number % 2:
            continue
        heads, dim = SHAPES[number % len(SHAPES)]
        how = {"causal": causal, "more": number // 2 % 2 * 5, "strided": number % 3 == 0, "window": window}
        case = make(queries, keys, dtype, heads, dim, device=device, **how)
        try:
            out = call(case, impl)
        except Unsupported as refusal:
            assert device == "cuda" and "window" not in str(refusal), refusal
            continue
        assert wrong(out, case, dtype) is None, (queries, keys, heads, dim, how)
        assert torch.equal(out, call(case, impl)), "a second call gives the same bits"


@pytest.mark.gpu
@pytest.mark.parametrize("window", ((127, 0), (128, 128), (1023, -1)))
@pytest.mark.parametrize("dtype", ("float16", "bfloat16"))
@pytest.mark.parametrize("impl, device", [p for p in KERNELS if p.values[1] == "cuda"])
def test_kernels_on_many_sequences(impl, device, dtype, window):
    lengths = tuple(OP._lengths(OP.validate({"batch": 24, "seq": 2000})))
    for dim in (64, 128):
        case = make(lengths, lengths, dtype, (8, 4), dim, device=device, window=window)
        with skip_unsupported(device):
            assert wrong(call(case, impl), case, dtype) is None, dim


@pytest.mark.parametrize("impl, device", KERNELS)
def test_what_limits_nothing_is_no_window(impl, device):
    """Bit for bit: no limit, one beyond all rows, and (-1, 0), which is causal."""
    case = make((70, 30, 129), (90, 3, 129), "float16", (2, 1), 64, device=device)

    def out(causal, window):
        return attention_varlen(*case.args, causal=causal, window=window, impl=impl)

    with skip_unsupported(device):
        for window in ((-1, -1), (221, 228), (2**31 - 1, -1), (-1, 2**31 - 1)):
            assert torch.equal(out(False, window), out(False, None))
        assert torch.equal(out(False, (-1, 0)), out(True, None))
        assert torch.equal(out(True, (40, 9)), out(False, (40, 0)))


@pytest.mark.parametrize(
    "window", ([3, 4], (3,), (1, 2, 3), (-2, 3), (3, 1.0), (True, 3), 5, (2**31, 0)), ids=str
)
def test_what_is_no_window_is_refused(window):
    args = make((7, 3), (7, 3), "float32").args
    attention_varlen(*args, window=(1, 1))
    with pytest.raises(ValueError, match=r"window is None or \(left, right\), numbers of keys from 0"):
        attention_varlen(*args, window=window)
    with pytest.raises(ValueError, match="window is None"):
        attention_varlen(*args, window=window, impl="cpu")


def test_the_operator_checks_its_numbers():
    args = make((7, 3), (7, 3), "float32").args
    attention_varlen(*args)
    with pytest.raises(RuntimeError, match="numbers of keys, or -1 for no limit; not 3 and -2"):
        torch.ops.fusescope.attention_varlen(*args, False, None, "cpu", 3, -2)


def test_a_call_whose_like_went_well_takes_another_window():
    """Remembered by what it depends on in Python, of which the window is none."""
    args = make((70, 30), (70, 30), "float32").args
    for window in (None, (3, 0), (0, 3), None, (3, 0)):
        case = make((70, 30), (70, 30), "float32", window=window)
        assert wrong(attention_varlen(*args, window=window), case, "float32") is None


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_opcheck_and_compile(device):
    kernels.load(device)
    torch._dynamo.reset()
    args = make((70, 0, 33), (65, 2, 33), "float16", (4, 2), 64, device=device).args
    given = (*args, False, 0.125, OP.choose(*args[:3], window=(9, 3)), 9, 3)
    results = torch.library.opcheck(torch.ops.fusescope.attention_varlen.default, given)
    assert set(results.values()) == {"SUCCESS"}
    compiled = torch.compile(
        lambda *t: attention_varlen(*t, window=(9, 3)) + 1, fullgraph=True, backend=COMPILER[device]
    )
    torch.testing.assert_close(compiled(*args), attention_varlen(*args, window=(9, 3)) + 1)


@pytest.mark.gpu
def test_a_captured_graph_follows_the_lengths():
    q, k, v, cu_q, cu_k = make((700, 30, 900), (700, 30, 900), "float16", (8, 4), 64, device="cuda").args
    attention_varlen(q, k, v, cu_q, cu_k, window=(100, 20))  # loads the library
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = attention_varlen(q, k, v, cu_q, cu_k, window=(100, 20))
    for given in ((0, 1, 10, 1630), (0, 0, 0, 0), (0, 400, 1000, 1500)):
        cu_q.copy_(torch.tensor(given, dtype=torch.int32))
        cu_k.copy_(cu_q)
        graph.replay()
        assert torch.equal(out, attention_varlen(q, k, v, cu_q, cu_k, window=(100, 20)))


def test_auto_leaves_out_kernels_that_take_no_window():
    """A kernel of a user's own says that it takes one; the repository's all do."""
    takes = directives.read(["fp16"], [], [])["takes"]
    inputs = directives.Inputs("float16", 64, window=True)
    assert not takes.accepts(inputs) and takes.accepts(directives.Inputs("float16", 64))
    for v in families()["attention_varlen"].variants:
        assert v.device == "cpu" or v.takes.window


SMALL = {"batch": 2, "heads": 2, "seq": 40, "head_dim": 32}


@pytest.mark.parametrize("window", ((-1, -1), (-1, 0), (0, 0), (3, 70), (64, 1)))
@pytest.mark.parametrize("n", (1, 5, 64, 65, 200))
def test_counts(n, window):
    at, (left, right) = torch.arange(n), window
    behind = at[:, None] - at
    keep = (behind <= (n if left < 0 else left)) & (behind >= -(n if right < 0 else right))
    padded = torch.nn.functional.pad(keep, (0, -n % 64, 0, -n % 64))
    tiles = padded.unflatten(1, (-1, 64)).unflatten(0, (-1, 64))
    assert windows.live(n, window) == int(keep.sum())
    assert windows.fewest(n, window) == int(keep.sum(1).min())
    assert windows.live_tiles(n, window) == int(tiles.any(3).any(1).sum())


def test_cases_without_a_window_stay_the_same_cases():
    plain = OP.validate(SMALL)
    assert "left" not in plain and OP.validate(plain | {"left": None}) == plain
    assert OP.validate(SMALL | {"left": 4})["left"] == 4
    with pytest.raises(ValueError, match="right is 0 or left out where causal is yes, not 3"):
        OP.validate(SMALL | {"causal": "yes", "right": 3})
    with pytest.raises(ValueError, match="left"):
        OP.validate(SMALL | {"left": -2})
