"""Every segment timed on its own: what the additive prior of the search stands on, and what the page shows of
each."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fusescope.core.records import Record, Times
from fusescope.search import runtime
from fusescope.search.measuring.candidate import Trial, cause
from fusescope.search.measuring.evaluate import GROUP, TURN_MS, Evaluator
from fusescope.search.scheme import codegen
from fusescope.search.scheme.layer import cost
from fusescope.search.scheme.setting import SEGMENT


def measure(evaluator: Evaluator, codes: Iterable[str], say: Callable[[str], None]) -> None:
    """A record (op layer_segment, impl = what it became) of every segment of these codes that has none; a
    segment that failed is recorded with its reason."""
    import torch

    known = evaluator.reporter.skip()
    found = {s.operators: s for c in codes for s in codegen.plan(c, evaluator.setting)}
    due = [s for s in found.values() if (evaluator.loader.key(s), s.how) not in known]
    with torch.no_grad():
        for start in range(0, len(due), GROUP):
            say(f"segments on their own, {start} of {len(due)}")
            _group(evaluator, due[start : start + GROUP])
    evaluator.segments.forget()


def _group(evaluator: Evaluator, some: list[codegen.Segment]) -> None:
    from fusescope.measure import compare

    trials = {s: Trial(s.span) for s in some}
    samplers = {}
    for s, t in trials.items():
        evaluator.reporter.doing(evaluator.loader.key(s), s.how, 120.0)
        try:
            function, given = evaluator.segments.function(s), evaluator.segments.arguments(s)
            samplers[s.span] = runtime.sampler(
                _call(function, given), evaluator.setting.device, evaluator.pool
            )
        except Exception as e:
            t.fail(*cause(e))
    stop = compare.Stop(0.01, 10, evaluator.budget_s / 3, evaluator.budget_s * max(1, len(samplers)))
    series = compare.rounds(
        samplers, stop, evaluator.seed, lambda name: evaluator.reporter.check(), turn_ms=TURN_MS
    )
    for s, t in trials.items():
        if t.status is None and series[s.span].failure is not None:
            t.fail(*cause(series[s.span].failure))
        _record(evaluator, s, t, series.get(s.span))


def _call(function, given) -> Callable:
    return lambda: function(*given)


def _record(evaluator: Evaluator, s: codegen.Segment, t: Trial, series) -> None:
    setting = evaluator.setting
    common = {
        "op": SEGMENT,
        "impl": s.how,
        "case": evaluator.loader.case(s),
        "dtype": setting.dtype,
        "device": setting.device,
    }
    common |= {"backend": ", ".join(s.names)}
    if t.status is not None:
        evaluator.reporter.record(Record(status=t.status, reason=t.reason, **common))
        return
    time = series.time()
    moved = cost(s.operators, setting.sizes(), setting.dtype).bytes
    evaluator.reporter.record(
        Record(status="ok", time_ms=Times(**{series.mode: time}), gbps=moved / time.median / 1e6, **common)
    )
