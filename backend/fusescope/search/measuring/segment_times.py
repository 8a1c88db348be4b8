"""Every segment timed on its own: the basis of the search's additive prior, and what the page shows of
each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from fusescope.core.records import Record, Times
from fusescope.measure.candidate import Candidate
from fusescope.ops.base import Implementation
from fusescope.search.measuring.evaluate import GROUP, Evaluator
from fusescope.search.measuring.group import Group
from fusescope.search.scheme import codegen
from fusescope.search.scheme.layer import cost
from fusescope.search.scheme.setting import SEGMENT


class _Segments(Group):
    """A group of segments, each with a case of its own. ``keys``: by the candidate's name."""

    def _doing(self, c: Candidate) -> None:
        self.reporter.doing(self.keys[c.name], c.info.idea, self.spec.case_deadline_s)


def measure(evaluator: Evaluator, codes: Iterable[str], say: Callable[[str], None]) -> None:
    """A record (op layer_segment, impl = what it became) of every segment of these codes that has none; a
    segment that failed is recorded with its reason."""
    import torch

    known = evaluator.reporter.skip()
    segments = {s.operators: s for c in codes for s in codegen.plan(c, evaluator.setting)}
    due = [s for s in segments.values() if (evaluator.loader.key(s), s.how) not in known]
    with torch.no_grad():
        for start in range(0, len(due), GROUP):
            say(f"segments on their own, {start} of {len(due)}")
            _group(evaluator, due[start : start + GROUP])
    evaluator.segments.forget()


def _group(evaluator: Evaluator, some: list[codegen.Segment]) -> None:
    group = evaluator.group(SEGMENT, evaluator.budget_s, _Segments)
    group.keys = {s.span: evaluator.loader.key(s) for s in some}
    several = [Candidate(Implementation(s.span, "segment", s.how, (evaluator.setting.device,))) for s in some]
    for s, c in zip(some, several):
        c.run = c.attempt(lambda s=s: _call(evaluator, s))
    group.sample_all(several)
    for s, c in zip(some, several):
        evaluator.reporter.record(_record(evaluator, s, c))


def _call(evaluator: Evaluator, s: codegen.Segment) -> Callable[[], Any]:
    return partial(evaluator.segments.function(s), *evaluator.segments.arguments(s))


def _record(evaluator: Evaluator, s: codegen.Segment, c: Candidate) -> Record:
    setting = evaluator.setting
    common = {"op": SEGMENT, "impl": s.how, "case": evaluator.loader.case(s), "dtype": setting.dtype}
    common |= {"device": setting.device, "backend": ", ".join(s.names)}
    if c.status is not None:
        return Record(status=c.status, reason=c.reason, **common)
    ((mode, time),) = c.times().items()
    moved = cost(s.operators, setting.sizes(), setting.dtype).bytes
    return Record(status="ok", time_ms=Times(**{mode: time}), gbps=moved / time.median / 1e6, **common)
