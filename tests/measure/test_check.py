"""Correct first: wrong implementations are caught whatever their way of being wrong, and what is right
passes."""

import signal
from contextlib import nullcontext

import pytest
import torch

from fusescope import ops
from fusescope.measure.checking import bounds, watch
from fusescope.measure.checking.bounds import Bounds
from fusescope.measure.checking.check import Case, compare
from fusescope.measure.checking.poison import poisoned
from fusescope.ops.base import Tolerance

TIGHT = Tolerance(1e-6, 1e-6)


@pytest.mark.sample(4)
@pytest.mark.slow
@pytest.mark.parametrize(
    "function, says",
    [
        ("unwritten", "out of tolerance"),
        ("unwritten_after_luck", "out of tolerance"),
        ("off_by_one", "out of tolerance"),
        ("last_element", "1 of 1000 elements are out of tolerance; the worst, [999]"),
        ("ignores_strides", "on non-contiguous inputs: "),
        ("mutates", "it changed its input a"),
        (
            "not_a_number",
            "1 of 1000 elements are NaN or infinite where the reference is not, or the reverse; the first, "
            "[500]",
        ),
        ("infinite", "the first, [0], is -inf"),
        ("remembers", "on fresh values in the same tensors: "),
        ("coarse", "out of tolerance"),
        ("other_dtype", "the result is float64, not float32"),
        ("other_shape", "the result has shape (1, 1000), not (1000,)"),
        ("not_a_tensor", "it returned list, not a tensor"),
    ],
)
def test_wrong_implementations_are_struck_out(quick, wrong, function, says):
    name = wrong(function)
    reporter = quick([name, "eager"])
    bad, good = sorted(reporter.records, key=lambda r: r.impl == "eager")
    assert bad.status == "wrong" and says in bad.reason, bad.reason
    assert bad.time_ms is None and bad.speedup is None and bad.tflops is None
    assert good.status == "ok" and good.accuracy.max_abs < 1e-6, (
        "damage done by one implementation reached another"
    )
    assert not any(line[1] == name for line in reporter.raw), "a wrong result has no samples"


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 3, 100, 1000, 100_000, 5_000_000])
def test_poison_reaches_what_operators_allocate(n):
    """Without luck: several calls, with a freed buffer of the right size and the right contents each time."""

    def leaves_half_unwritten():
        lucky = torch.ones(n)
        del lucky
        out = torch.empty(n)
        out[: n // 2] = 1.0
        return out

    for _ in range(5):
        with poisoned("cpu", 4 * n):
            out = leaves_half_unwritten()
        unwritten = out[n // 2 :]
        assert bool((unwritten.isnan() | (unwritten > 1e38)).float().mean() > 0.5)
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.gpu
@pytest.mark.parametrize("n", [3, 100_000, 50_000_000])
def test_poison_reaches_what_operators_allocate_on_a_gpu(n):
    def leaves_half_unwritten():
        out = torch.empty(n, device="cuda")
        out[: n // 2] = 1.0
        return out

    leaves_half_unwritten()  # its memory is in the allocator's cache now
    with poisoned("cuda:0", 4 * n):
        out = leaves_half_unwritten()
    assert bool(out[n // 2 :].isnan().all())


def test_a_case_keeps_inputs_and_reference():
    module = ops.load("add")
    case = Case(module, {"n": 33}, "float16", "cpu", seed=4, contiguous=False)
    assert case.precision == "float64" and case.reference.dtype == torch.float64
    assert not case.inputs["a"].is_contiguous() and case.inputs["a"].storage_offset() > 0
    outcome = case.verify(lambda: case.inputs["a"] + case.inputs["b"])
    assert outcome.reason is None and 0 < outcome.accuracy.max_abs < 5e-3


def test_comparison_of_special_values():
    inf, nan = float("inf"), float("nan")
    ref = torch.tensor([1.0, inf, -inf, nan, 0.0], dtype=torch.float64)
    assert compare(ref.float(), ref, TIGHT).reason is None
    assert "NaN or infinite" in compare(torch.tensor([1.0, -inf, -inf, nan, 0.0]), ref, TIGHT).reason
    assert "NaN or infinite" in compare(torch.tensor([1.0, inf, -inf, 2.0, 0.0]), ref, TIGHT).reason
    every = compare(torch.full((3,), nan), torch.ones(3, dtype=torch.float64), TIGHT)
    assert every.accuracy is None and "3 of 3" in every.reason


def test_overflow_of_the_dtype_is_what_rounding_gives():
    ref = torch.tensor([70000.0, -70000.0], dtype=torch.float64)
    assert compare(ref.half(), ref, TIGHT).reason is None
    assert compare(torch.tensor([60000.0, -65504.0]).half(), ref, TIGHT).reason is not None


def test_figures_of_accuracy():
    ref = torch.tensor([[1.0, 2.0], [4.0, 0.0]], dtype=torch.float64)
    out = torch.tensor([[1.0, 2.5], [4.0, 0.0]])
    outcome = compare(out, ref, Tolerance(0.1, 0.0))
    assert outcome.accuracy.max_abs == pytest.approx(0.5) and outcome.accuracy.max_rel == pytest.approx(0.25)
    assert 0.99 < outcome.accuracy.cosine < 1
    assert "the worst, [0, 1], is 2.5, the reference 2, allowed difference 0.1" in outcome.reason
    exact = compare(ref.float(), ref, Tolerance(0.0, 0.0))
    assert exact.reason is None and exact.accuracy.max_abs == 0
    assert compare(torch.zeros(0), torch.zeros(0, dtype=torch.float64), TIGHT).reason is None


def test_a_small_difference_is_seen_in_the_figures():
    """It was "is 14.2925, the reference 14.2924" of a difference of 6.9e-05."""
    out, ref = torch.tensor([14.292470, 1.0]), torch.tensor([14.292401, 1.0], dtype=torch.float64)
    assert "is 14.29247, the reference 14.292401, allowed" in compare(out, ref, Tolerance(1e-9, 0.0)).reason


@pytest.mark.slow
@pytest.mark.parametrize(
    "function, says",
    [
        ("right_at_first", "unstable: it was right when checked, and a timed call (eager"),
        ("wrong_now_and_then", "unstable: it was right when checked, and a timed call (eager"),
        ("mutates_later", "changed"),
    ],
)
def test_what_goes_wrong_while_it_is_timed_has_no_time(quick, wrong, function, says):
    reporter = quick([wrong(function), "eager"], cache="both")
    bad, good = sorted(reporter.records, key=lambda r: r.impl == "eager")
    assert bad.status in ("wrong", "error") and says in bad.reason, bad.reason
    assert bad.time_ms is None and bad.speedup is None
    assert good.status == ("ok" if function != "mutates_later" else good.status), good.reason


class Steady:
    """A sampler, and what compares its results, whose calls and comparisons take ``call_s`` on a clock of its
    own; each third call ``interrupted_s`` more, as where another process gets the CPU."""

    def __init__(self, call_s: float, interrupted_s: float = 0.0):
        self.mode, self.cost_ms = "eager", 1e3 * call_s
        self.now, self._call_s, self._interrupted_s, self._calls = 0.0, call_s, interrupted_s, 0

    def monotonic(self) -> float:
        return self.now

    compares, changed = True, {}

    @staticmethod
    def around(look, last=False):
        return nullcontext()

    def wrong(self, out):
        self.now += self._call_s

    def take(self, count, look=None):
        for _ in range(count):
            self._calls += 1
            self.now += self._call_s + self._interrupted_s * (self._calls % 3 == 0)
        if look:
            look(self._calls)
        return [1e3 * self._call_s] * count


@pytest.mark.parametrize(
    "call_s, interrupted_s, rounds, fewest, most",
    [
        (1e-4, 0.0, 5, watch.WANTED, watch.WANTED),  # a short sampling of a quick call
        (1e-4, 0.01, 5, watch.WANTED, watch.WANTED),  # the same on a loaded machine
        (1e-4, 5.0, 5, 1, 20),  # one that hardly runs it
        (0.06, 0.0, 5, 4, 6),  # a slow call: LEAST_S after the sampling
        (0.06, 0.0, 200, 20, 60),  # a tenth of the time, during and after it
        (20.0, 0.0, 5, 1, 4),
    ],
)
def test_results_are_compared_however_short_the_sampling(
    monkeypatch, call_s, interrupted_s, rounds, fewest, most
):
    sampler = Steady(call_s, interrupted_s)
    monkeypatch.setattr(watch, "time", sampler)
    watched = watch.Watched(sampler, sampler, "seed")
    for _ in range(rounds):
        watched.take(2)
    watched.finish()
    assert fewest <= watched.compared <= most


@pytest.mark.slow
@pytest.mark.parametrize(
    "function, says",
    [
        ("exits", "it raised SystemExit: nothing more to do"),
        ("exits_later", "it raised SystemExit: 3"),
        ("interrupts", "it raised KeyboardInterrupt"),
    ],
)
def test_what_ends_the_process_costs_its_own_record(quick, wrong, function, says):
    reporter = quick([wrong(function), "eager"])
    bad, good = sorted(reporter.records, key=lambda r: r.impl == "eager")
    assert (bad.status, good.status) == ("error", "ok") and says in bad.reason


def test_the_users_own_ctrl_c_cancels(quick, wrong):
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        quick([wrong("interrupts_itself"), "eager"])
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_bounds_let_pass_what_the_reference_lets_pass(dtype):
    tolerance, kind = Tolerance(1e-3, 2e-3), getattr(torch, dtype)
    ref = torch.tensor([0.0, 1.0, -3.7, float("inf"), float("nan"), 1e-7, 1e39, 65000.0], dtype=torch.float64)
    bounds = Bounds(ref, tolerance, kind, "cpu")
    finite = ref.isfinite() & (ref.abs() < torch.finfo(kind).max)
    right = ref.to(kind)
    edge = torch.where(finite, ref + 0.99 * (1e-3 + 2e-3 * ref.abs()), ref)
    assert bounds.broken_by(right) is None
    for out in (edge.to(kind), (2 * ref - edge).to(kind)):
        if compare(out, ref, tolerance).reason is None:
            assert bounds.broken_by(out) is None
    for at, value in ((1, 1.02), (2, 3.7), (3, 60000.0), (4, 0.0), (0, float("nan")), (6, 1.0)):
        out = right.clone()
        out[at] = value
        assert f"1 of 8 elements are out of tolerance; the first, [{at}]" in bounds.broken_by(out)


def test_an_element_has_its_own_tolerance_in_every_piece(monkeypatch):
    """Both comparisons go piece by piece; what an element may be off by counts from the result's start."""
    monkeypatch.setattr(bounds, "_PIECE", {"cpu": 4, "cuda": 4})
    reference, own = torch.zeros(10, dtype=torch.float64), torch.full((10,), 1e-3)
    own[9] = 1.0
    loose = Tolerance(1e-6, 0.0, own=own)
    for at, right in ((9, True), (8, False), (1, False)):
        out = torch.zeros(10)
        out[at] = 0.5
        assert (compare(out, reference, loose).reason is None) is right
        assert (Bounds(reference, loose, torch.float32, "cpu").broken_by(out) is None) is right
