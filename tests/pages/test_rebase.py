"""Another baseline on a stored result: ratios of the shown medians, in intervals no narrower than theirs."""

import dataclasses
import math
import shutil

import folders
import pytest
import synthetic as s
from drawn_page import calm, query, said, widget
from streamlit.proto.SelectWidgetFilterMode_pb2 import FILTER_MODE_NONE

from fusescope.analysis import rebase
from fusescope.analysis.statistics import allowance
from fusescope.core.machine.conditions import Conditions, marks
from fusescope.core.records import Record, Speedup, Time, Times
from fusescope.jobs import submit


def timed(impl: str, median: float, low: float, high: float, n: int = 1, **times: Time) -> Record:
    return Record(
        "add",
        impl,
        {"n": n},
        "float32",
        "cpu",
        "ok",
        time_ms=Times(eager=Time(median, low, high, 20, True), **times),
    )


def test_ratio_and_interval_follow_from_the_two_times():
    a, b, base = timed("a", 2.0, 1.9, 2.1), timed("b", 8.0, 7.0, 9.0), timed("base", 4.0, 3.9, 4.2)
    found = {r.impl: r.speedup for r in rebase.rebased([a, b, base], "base")}
    wider = math.exp(allowance(20))
    assert (found["a"].median, found["a"].low) == (2.0, pytest.approx(3.9 / 2.1 / wider))
    assert found["a"].high == pytest.approx(4.2 / 1.9 * wider)
    assert found["a"].verdict == "faster" and found["b"].verdict == "slower"
    assert found["base"].verdict == "same"
    near = rebase.rebased([timed("near", 4.01, 3.8, 4.3), base], "base")[0].speedup
    assert near.verdict == "inconclusive"


def test_what_did_not_converge_is_inconclusive():
    base, noisy = timed("base", 1.2, 1.19, 1.21), timed("noisy", 1.0, 0.9, 1.1)
    noisy = dataclasses.replace(noisy, time_ms=Times(eager=Time(1.0, 0.9, 1.1, 20, False)))
    assert rebase.rebased([noisy, base], "base")[0].speedup.verdict == "inconclusive"
    assert rebase.rebased([noisy, base], "noisy")[1].speedup.verdict == "inconclusive"


def test_through_the_baseline_of_the_run_few_rounds_are_known_to_be_few():
    """60 times as slow was "inconclusive (too noisy): 14 samples are too few", and 1.16 times, of intervals
    [0.853, 0.868] of 14 samples each, would have been "slower"."""

    def over_sdpa(impl, ms, low, high, n=14, converged=True):
        own = timed(impl, ms, 0.998 * ms, 1.002 * ms)
        times = Times(eager=dataclasses.replace(own.time, n=n, converged=converged))
        known = Speedup("eager", 0.96 / ms, low, high, converged=converged)
        return dataclasses.replace(own, time_ms=times, speedup=known)

    base = over_sdpa("flash4", 0.89, 0.73, 1.6)
    slow, near = over_sdpa("v1", 53.0, 0.012, 0.028, 7, False), over_sdpa("v4", 1.03, 0.56, 1.53)
    sdpa = over_sdpa("sdpa", 0.96, 1.0, 1.0)
    found = {r.impl: r.speedup for r in rebase.rebased([base, slow, near, sdpa], "flash4")}
    assert found["v1"].verdict == "slower" and found["v1"].high < 0.05
    assert found["v4"].verdict == "inconclusive" and found["v4"].low < 0.6 and found["v4"].high > 1.2
    own = base.speedup
    assert (found["sdpa"].low, found["sdpa"].high) == (1 / own.high, 1 / own.low), "as it was sampled"


def test_a_great_difference_needs_no_precise_times():
    """Twice as fast, known to 10 %: not enough for the record's own baseline, which was near."""
    base = timed("base", 2.0, 1.99, 2.01)
    near = dataclasses.replace(base, impl="near", time_ms=Times(eager=Time(1.0, 0.95, 1.05, 20, False)))
    assert rebase.rebased([near, base], "base")[0].speedup.verdict == "faster"


def test_records_keep_all_but_the_speed_up():
    records = s.sweep()
    other = rebase.choices(records)[-1]
    for before, after in zip(records, rebase.rebased(records, other), strict=True):
        assert (after.time_ms, after.accuracy, after.status) == (
            before.time_ms,
            before.accuracy,
            before.status,
        )
        assert (after.speedup is None) == (before.status != "ok")


def test_clocks_are_compared_with_those_of_the_new_baseline():
    """The baseline itself was marked as clocked below the baseline's."""

    def clocked(impl: str, mhz: float | None, off: float | None) -> Record:
        found = Conditions(sm_mhz=mhz, clock_difference=off)
        return dataclasses.replace(timed(impl, 2.0, 1.9, 2.1), conditions=found, throttled=bool(off))

    run = clocked("base", 1980, 0.0), clocked("a", 1880, -0.0505), clocked("b", 1881, -0.05)
    base, a, b, silent = rebase.rebased([*run, clocked("silent", None, None)], "a")
    assert marks(a) == [] == marks(b) == marks(silent)
    assert marks(base) == ["SM clock 5.3 % above the baseline's"]
    assert [r.throttled for r in (base, a, b)] == [True, False, False]
    assert base.conditions.sm_mhz == 1980
    unknown = rebase.rebased([*run, clocked("silent", None, None)], "silent")
    assert not any(map(marks, unknown)), "nothing is said against a clock that is not known"


def test_the_mode_is_one_that_both_have():
    graph = Time(1.0, 0.9, 1.1, 20, True)
    with_graph, without = timed("a", 3.0, 2.9, 3.1, graph=graph), timed("base", 6.0, 5.9, 6.1)
    assert rebase.rebased([with_graph, without], "base")[0].speedup.of == "eager"


def test_a_case_without_the_baseline_has_no_speed_up_and_it_is_no_choice():
    records = [
        timed("a", 1.0, 1.0, 1.0, n=1),
        timed("base", 1.0, 1.0, 1.0, n=1),
        timed("a", 1.0, 1.0, 1.0, n=2),
    ]
    assert [r.speedup is None for r in rebase.rebased(records, "base")] == [False, False, True]
    assert rebase.choices(records) == ["a"]
    assert rebase.choices([s.failed("v1", s.case())]) == []


@pytest.mark.parametrize("page", ["kernels", "runs"])
def test_a_result_is_compared_with_another_implementation(draw, few, page):
    run = few["point"].id
    own = draw(page, run=run)
    picker = next(b for b in own.selectbox if b.label == "compared with")
    other = next(o for o in picker.options if o != picker.value)
    at = draw(page, run=run, over=other)
    assert f" {other}" in said(at.markdown) and "not paired" in said(at.caption)
    assert query(at)["over"] == other
    assert "not paired" not in said(own.caption) and "over" not in query(own)


@pytest.mark.parametrize("page", ["kernels", "runs"])
def test_a_case_is_compared_with_any_that_has_a_time_in_it(draw, profiles, page):
    """flash4 was in the chart of a case and not among the choices: it had no time in other cases."""
    one, two = (timed(impl, 2.0, 1.9, 2.1, n=1) for impl in ("eager", "flash4"))
    three, gone = timed("eager", 4.0, 3.9, 4.1, n=2), timed("flash4", 1.0, 1.0, 1.0, n=2)
    gone = dataclasses.replace(gone, status="unsupported", time_ms=None, reason="not this n")
    cpu = timed("cpu", 8.0, 7.9, 8.1, n=1), timed("cpu", 9.0, 8.9, 9.1, n=2)
    spec = s.SPEC | {"op": "add", "cases": [{"n": 1}, {"n": 2}], "baseline": "eager", "dtype": "float32"}
    run = s.run(spec=spec)
    folders.write(profiles, run, [one, two, cpu[0], three, gone, cpu[1]], samples=False)
    at = draw(page, run=run.id)
    picker = widget(at.selectbox, "compared with")
    assert picker.options == ["eager", "cpu"], "flash4 has no time in the second case"
    assert picker.proto.filter_mode == FILTER_MODE_NONE, "nothing to type that is no option"
    at = draw(page, run=run.id, case="n=1", over="flash4")
    picker = widget(at.selectbox, "compared with")
    assert picker.options == ["eager", "flash4", "cpu"] and picker.value == "flash4"
    assert query(at)["over"] == "flash4"
    widget(at.selectbox, "case").set_value("n=2")
    assert widget(calm(at.run()).selectbox, "compared with").value == "eager" and "over" not in query(at)


def test_a_baseline_that_is_none_is_said(draw, few):
    at = draw("runs", run=few["point"].id, over="nonsense")
    assert "Ignored over=nonsense from the URL" in said(at.warning)


@pytest.mark.parametrize("records", [s.point(), []], ids=["with results", "before any result"])
def test_a_cancelled_run_is_over_its_own_baseline_and_what_was_chosen_before_stays(
    draw, profiles, monkeypatch, records
):
    """The choice of one run is none for the next, whether or not a drawing saw it live in between; a result
    that is shown again has the choice that was made for it."""
    first = s.run("20261120-104200-bench-abc123")
    folders.write(profiles, first, s.point(), samples=False)

    def cancelled(kind, spec, title=""):
        run = s.run("20261120-150000-bench-00000b", status="cancelled", created=1.8e9)
        folders.write(profiles, run, records, samples=False)
        return run.id

    monkeypatch.setattr(submit, "submit", cancelled)
    at = draw("kernels", run=first.id)
    picker = widget(at.selectbox, "compared with")
    own, other = picker.value, next(o for o in picker.options if o != picker.value)
    picker.set_value(other)
    assert query(calm(at.run()))["over"] == other
    widget(at.button, "Run").click()
    calm(at.run())
    assert query(at)["run"].endswith("00000b")
    kept = other if not records else own  # without results the page shows the first again
    assert widget(at.selectbox, "compared with").value == kept
    assert query(at).get("over", own) == kept
    again = calm(at.run())
    assert widget(again.selectbox, "compared with").value == kept


def test_a_choice_outlasts_a_run_that_was_live_in_between(draw, profiles, monkeypatch):
    first = s.run("20261120-104200-bench-abc123")
    folders.write(profiles, first, s.point(), samples=False)
    live = s.run("20261120-150000-bench-00000b", status="queued", created=1.8e9, finished=None)

    def queued(kind, spec, title=""):
        folders.write(profiles, live, [], samples=False)
        return live.id

    monkeypatch.setattr(submit, "submit", queued)
    at = draw("kernels", run=first.id)
    picker = widget(at.selectbox, "compared with")
    other = next(o for o in picker.options if o != picker.value)
    picker.set_value(other)
    calm(at.run())
    widget(at.button, "Run").click()
    calm(at.run())
    assert "compared with" not in [b.label for b in at.selectbox] and "over" not in query(at)
    shutil.rmtree(profiles / live.id)
    folders.write(profiles, dataclasses.replace(live, status="cancelled"), [], samples=False)
    calm(at.run())
    assert widget(at.selectbox, "compared with").value == other and query(at)["over"] == other
