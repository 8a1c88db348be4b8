"""What a worker of a cluster measures of a traverse or a search: baselines, segments, codes or finalists.

The evaluator (inputs, reference, segments, captured graphs) is kept from one piece of work to the next.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from fusescope.core.reporter import Reporter
from fusescope.search.measuring import segment_times
from fusescope.search.measuring.evaluate import Evaluator
from fusescope.search.scheme.setting import of_spec


class _Relay:
    """A reporter whose words go to the one of the piece of work at hand."""

    to: Reporter

    def __getattr__(self, name: str) -> Any:
        return getattr(self.to, name)


_kept: dict[tuple, Evaluator] = {}
_relay = _Relay()


def run(spec: Mapping[str, Any], reporter: Reporter) -> None:
    """Do spec["work"] in the setting of ``spec``; records as everywhere. One of
    {"baselines": true}; {"segments": codes}: each segment of these on its own; {"codes": [...]}, those that
    have no record; {"final": codes}: with the full budget and all baselines, whose times and paired speed-ups
    are said as environment(final={name: {"ms", "speedups": {baseline: Speedup}}}), as JSON values.
    """
    _relay.to = reporter
    work, evaluator = spec["work"], _evaluator(spec, _say)
    if "baselines" in work:
        evaluator.baselines(_say)
    if "segments" in work:
        evaluator.loader.load(work["segments"], _say)
        segment_times.measure(evaluator, work["segments"], _say)
    if "codes" in work:
        there = {impl for key, impl in reporter.skip() if key == evaluator.key}
        evaluator.evaluate([code for code in work["codes"] if code not in there], _say)
    if "final" in work:
        found = evaluator.final(work["final"], _say)
        reporter.environment(final={name: _plain(one) for name, one in found.items()})


def _evaluator(spec: Mapping[str, Any], say) -> Evaluator:
    setting = of_spec(spec)
    key = (setting, spec["seed"], spec["budget_s"])
    if key not in _kept:
        _kept.clear()  # the memory of another setting
        made = Evaluator(setting, _relay, spec["seed"], spec["budget_s"])
        made.prepare(say)
        _kept[key] = made
    return _kept[key]


def _say(text: str) -> None:
    _relay.check()
    _relay.progress(0, 0, text)


def _plain(one: Mapping[str, Any]) -> dict[str, Any]:
    pairs = one["speedups"].items()
    return {"ms": one["ms"], "speedups": {b: dataclasses.asdict(s) for b, s in pairs}}
