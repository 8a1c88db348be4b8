"""What a comparison is expected to take: priors, what earlier jobs taught, and what is left of one."""

from __future__ import annotations

import math
import sys
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest

from fusescope.analysis import estimate
from fusescope.analysis.estimate import Facts
from fusescope.core.machine import load, stage_times
from fusescope.core.records import BenchSpec
from fusescope.measure import pace

ONE = BenchSpec("add", ("a", "b"), ({"n": 1},), "a", cache="warm")
SMALL = Facts("a CPU", [(1e3, 4e3, 1e3)])
BUILD, CEILINGS, CHECK, SAMPLE, FINISH = 1, 2, 3, 4, 5


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FUSESCOPE_STAGE_TIMES", str(tmp_path / "cache" / "stage_times.json"))


@pytest.fixture
def clock(monkeypatch):
    """Seconds now, and the share of them that others had the CPU."""
    now = [100.0, 0.0]
    monkeypatch.setattr(pace.time, "monotonic", lambda: now[0])

    def thread_s():
        return now[0] * (1 - now[1]), now[0] * now[1]

    monkeypatch.setattr(load, "thread_s", thread_s)
    return now


def of(spec: BenchSpec = ONE, past=None, **facts) -> float:
    return estimate.seconds(spec, replace(SMALL, **facts), past or {})


def test_the_estimate_grows_with_what_is_asked():
    many = replace(ONE, cases=tuple({"n": i} for i in range(10)))
    assert 0 < of() < of(replace(ONE, cache="both")) < of(many, work=SMALL.work * 10)
    assert of() < of(replace(ONE, impls=("a", "b", "c", "d"))) and of() < of(replace(ONE, budget_s=60.0))
    assert of() + 100 == pytest.approx(of(build_s=100.0))
    assert of() + 10 < of(compile_s={"b": 5.0}) < of() + 20, "the compiler's start comes on top, once"
    assert of() < 30 and math.isfinite(of(work=[(0.0, 0.0, 0.0)]))


def test_a_model_is_mostly_products_of_large_matrices_which_are_quick():
    large = [(3.5e11, 4e8, 3.5e11)]
    assert of(work=large, reference_s=5.0) < 0.8 * of(work=large)


def test_further_processes_repeat_all_but_building():
    two, three = (replace(ONE, processes=n) for n in (2, 3))
    assert 2 * of() < of(three) and of(three, build_s=100.0) == pytest.approx(of(three) + 100)
    assert of(two) > of() + 2 * estimate._PROCESS["cpu"], "each of several is an interpreter of its own"


def test_busy_cpus_make_all_but_sampling_longer(clock):
    idle, busy = estimate.plan(ONE, SMALL, {}), estimate.plan(ONE, replace(SMALL, busy=3.0), {})
    for one, other in zip(idle, busy, strict=True):
        assert other.seconds == pytest.approx(one.seconds * (1 if one.stage == "sample" else 3))
    clock[1] = 2 / 3
    taught = gone_through(ONE, SMALL, {}, clock, lambda stage, name: 6.0)
    wanted = {True: 6.0, False: 2.0}
    for key, seconds in taught.items():
        if "over the prior" not in key:
            assert seconds == pytest.approx(wanted[key.startswith("sample")]), (
                "what is remembered is of idle CPUs"
            )


def test_weights_of_a_model_are_not_compared():
    of_operator, of_model = (
        estimate.plan(ONE, replace(SMALL, work=[(1e9, 4e9, 1e9)], reference_s=s), {})[CHECK].seconds
        for s in (0.0, 1e-9)
    )
    assert of_operator > 5 * of_model


def test_slow_calls_take_the_least_number_of_rounds_whatever_the_budget():
    slow = of(work=[(4e10 * 10, 1e6, 4e10 * 10)])  # 20 s a call
    assert slow > 5 * 2 * 20


def gone_through(spec, facts, past, clock, seconds, compiles=()) -> dict[str, float]:
    """What a job teaches whose parts take ``seconds``; a compiler works for the checks of ``compiles``."""
    plan = estimate.plan(spec, facts, past)
    here = pace.Pace(plan, clock[0])
    for number, phase in enumerate(plan):
        here.enter(number)
        for name in phase.parts:
            here.part(name)
            clock[0] += seconds(phase.stage, name)
            if phase.stage == "check" and name in compiles:
                sys.modules["torch._dynamo.utils"].counters["inductor"]["fxgraph_cache_miss"] += 1
    return here.learnt(range(len(plan)))


def test_the_same_job_is_expected_to_take_as_long_as_it_took(clock):
    def took(stage, name):
        return {"start": 4.0, "build": 0.0, "sample": 9.0}.get(stage, 1.5)

    stage_times.note(gone_through(ONE, SMALL, {}, clock, took))
    expected = of(past=stage_times.read())
    assert expected == pytest.approx(4.0 + 1.5 + 3 * 1.5 + 9.0 + 1.5, rel=0.01)


@pytest.mark.parametrize(
    "factor, low, high",
    [(1.1, 1.4, 1.6), (10.0, 11, 16), (0.1, 0.12, 0.18), (1e-3, 0.02, 0.05), (1e-6, 0, 0.1)],
)
def test_other_sizes_are_expected_from_the_nearest_one(clock, factor, low, high):
    large = replace(SMALL, work=[(1e10, 4e7, 1e10)])
    taught = gone_through(ONE, large, {}, clock, lambda stage, name: 1.5)
    other = replace(SMALL, work=[(1e10 * factor, 4e7 * factor, 1e10 * factor)])
    checks = estimate.plan(replace(ONE, cases=({"n": 2},)), other, taught)[CHECK]
    assert low <= checks.parts["b"].seconds <= high


@pytest.mark.parametrize(
    ("one", "other"),
    [((3.6, 3.8), (0.11, 0.09)), ((2.2, 2.91), (0.15, 0.16)), ((0.65, 0.58), (0.07, 0.06))],
    ids=["RMSNorm", "softmax", "attention"],
)
def test_a_size_tells_another_one_within_its_factor(one, other):
    """(prior, seconds) of checks as two cores took them: after a large RMSNorm a job of 6 s was promised 31,
    for what the large one took above its prior was expected of the small one too."""
    for (there, took), (here, takes) in ((one, other), (other, one)):
        assert takes / 3 <= estimate._of_another_size(took, there, here) <= 3 * takes


def test_a_compiler_finds_its_result_again(clock, monkeypatch):
    dynamo = SimpleNamespace(counters={"inductor": Counter()})
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", dynamo)
    facts = replace(SMALL, compile_s={"b": 10.0})

    def learnt(seconds, compiles, n=1):
        spec = replace(ONE, cases=({"n": n},))
        stage_times.note(
            gone_through(spec, facts, {}, clock, lambda _, name: seconds if name == "b" else 0.1, compiles)
        )

    def expected(n):
        spec = replace(ONE, cases=({"n": n},))
        return estimate.plan(spec, facts, stage_times.read())[CHECK].parts["b"].seconds

    prior = expected(2)
    learnt(3.0, ())  # it was compiled in an earlier job that nobody remembers
    assert expected(1) == pytest.approx(3.0) and expected(2) == pytest.approx(prior)
    learnt(20.0, ("b",), n=2)
    assert expected(2) == pytest.approx(8.0) and expected(3) == pytest.approx(20.0)
    learnt(8.0, (), n=2)
    assert expected(2) == pytest.approx(8.0) and expected(3) == pytest.approx(20.0), "what is new compiles"


def test_what_is_left_shrinks_and_follows_what_was_seen(clock):
    plan = estimate.plan(replace(ONE, cases=({"n": 1},) * 3), replace(SMALL, work=SMALL.work * 3), {})
    here = pace.Pace(plan, clock[0] - 1.0)
    whole = here.left_s()
    assert whole == pytest.approx(sum(p.seconds for p in plan) - 1.0)
    here.enter(BUILD)
    here.enter(CEILINGS)
    here.enter(CHECK)
    before = here.left_s()
    clock[0] += 40.0  # the first part of the first case's checks, overdue
    assert here.left_s() > 0.15 * 40
    here.enter(SAMPLE)
    assert here.left_s() > before, "the other cases' checks are expected to take longer, too"
    for number in range(SAMPLE, len(plan)):
        here.enter(number)
        clock[0] += plan[number].seconds
    assert here.left_s() < 1.0


def test_only_the_first_comparison_of_a_job_was_its_start(clock):
    plan = estimate.plan(ONE, SMALL, {})
    stage_times.starts(clock[0] - 3.0)
    job, further = (pace.Pace(plan, stage_times.started()) for _ in range(2))
    for here, expected in ((job, [3.0]), (further, [])):
        here.enter(BUILD)
        assert list(here.learnt([0]).values()) == expected


def test_what_skips_nothing_takes_as_long_as_without_a_mask():
    """A sparse mask hides work from those alone that leave it out; the reference is of all scores."""
    spec = replace(ONE, impls=("cpu", "eager"), baseline="eager")

    def of(executed, *skipping):
        facts = replace(SMALL, work=[(executed, 1e6, 4e11)], skipping=skipping)
        plan = estimate.plan(spec, facts, {})
        return {n: part.seconds for n, part in plan[CHECK].parts.items()} | {"sampling": plan[SAMPLE].seconds}

    sparse, full = of(4e9, "cpu"), of(4e11, "cpu")
    assert sparse["cpu"] < 0.05 * full["cpu"] and of(4e9)["cpu"] == full["cpu"]
    assert sparse["eager"] == full["eager"] and sparse["reference"] == full["reference"]
    assert 0.5 * full["sampling"] < sparse["sampling"] < 0.6 * full["sampling"]


def test_what_was_skipped_is_neither_expected_nor_learnt(clock):
    plan = estimate.plan(ONE, SMALL, {})
    here = pace.Pace(plan, clock[0])
    for number in (CHECK, SAMPLE, FINISH):
        here.skip(number)
    here.enter(FINISH)
    clock[0] += 5
    assert here.left_s() == 0 and here.learnt([CHECK, SAMPLE, FINISH]) == {}


def test_times_are_kept_and_the_newest_counts_most(tmp_path, monkeypatch):
    assert stage_times.read() == {}
    stage_times.note({"a": 10.0, "b": 1.0})
    stage_times.note({"a": 1.0})
    assert 1.0 < stage_times.read()["a"] < 4.0 and stage_times.read()["b"] == 1.0
    file = tmp_path / "cache" / "stage_times.json"
    for torn in ("{", "[]", '{"a": "x"}', '{"a": NaN}'):
        file.write_text(torn)
        assert stage_times.read() == {}
    monkeypatch.setattr(stage_times, "_MOST", 2)
    for key in "abca":
        stage_times.note({key: 1.0})
    assert list(stage_times.read()) == ["c", "a"]
    monkeypatch.delenv("FUSESCOPE_STAGE_TIMES")
    monkeypatch.setenv("FUSESCOPE_BUILD", "/proc/nowhere")
    stage_times.note({"a": 1.0})
    assert stage_times.read() == {}


def test_work_that_counts_itself_needs_no_guess_of_what_is_left(clock):
    plan = estimate.plan(ONE, replace(SMALL, build_s=80.0), {})
    rest = sum(p.seconds for p in plan[CEILINGS:])
    here = pace.Pace(plan, clock[0])
    here.enter(BUILD)
    clock[0] += 100.0
    assert here.left_s() == pytest.approx(20.0 + rest)
    here.advanced(0.75)
    assert here.left_s() == pytest.approx(0.25 * plan[BUILD].seconds + rest)
    clock[0] += 20.0
    here.advanced(1.0)
    assert here.left_s() == pytest.approx(rest)
