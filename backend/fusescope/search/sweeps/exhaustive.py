"""Every distinct scheme of some ranges measured: resumable, each once, segments compiled before and
shared."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence

from fusescope.core.machine import environment
from fusescope.core.reporter import Reporter
from fusescope.search import encoding, sessions
from fusescope.search.measuring import baselines, segment_times
from fusescope.search.measuring.evaluate import GROUP, Evaluator
from fusescope.search.scheme.setting import of_spec


def codes(ranges: Sequence[Sequence[int]] | None, limit: int | None, seed: int) -> list[str]:
    """The canonical codes to measure, in the order of measuring: drawn by the seed, so that what is there of
    an unfinished sweep is a fair sample.

    ranges: [first, last] values, both counted in; None = those of ``encoding.DEFAULT_RANGES``. limit: so
    many, evenly from the ranges (from those that hold fewer, all).
    """
    bounds = ranges or [[r.start, r.stop - 1] for r in encoding.DEFAULT_RANGES.values()]
    rng, seen, drawn = random.Random(seed), set(), []
    for first, last in bounds:
        found = [c for c in encoding.distinct(range(first, last + 1)) if c not in seen]
        seen.update(found)
        rng.shuffle(found)
        drawn.append(found)
    if limit is not None:
        drawn = _evenly(drawn, limit)
    together = [c for found in drawn for c in found]
    rng.shuffle(together)
    return together


def _evenly(lists: list[list[str]], limit: int) -> list[list[str]]:
    """At most ``limit`` in all: the shortest lists whole, as long as that is not more than their share."""
    left, kept = limit, {}
    order = sorted(range(len(lists)), key=lambda i: len(lists[i]))
    for done, i in enumerate(order):
        kept[i] = lists[i][: left // (len(order) - done)]
        left -= len(kept[i])
    return [kept[i] for i in range(len(lists))]


def run(spec: Mapping, reporter: Reporter) -> None:
    """The job kind ``traverse``: baselines, the time of every segment on its own, then the codes that have no
    record yet."""
    setting = of_spec(spec)
    evaluator = Evaluator(setting, reporter, spec["seed"], spec["budget_s"])
    name = environment.device_name(setting.device) if spec["after"] else None
    wanted, due = _due(spec, reporter, evaluator.key, name)
    done = len(wanted) - len(due)

    def say(text: str) -> None:
        reporter.check()
        reporter.progress(done, len(wanted), text, _first_guess(len(due)))

    say(f"{done} of {len(wanted)} schemes have their records already" if done else "starting")
    evaluator.prepare(say)
    if due:
        evaluator.loader.load([*due, *baselines.BASELINES], say)
    evaluator.baselines(say)
    if spec["segments"]:
        segment_times.measure(evaluator, due, say)
    begun = time.monotonic()
    for start in range(0, len(due), GROUP):
        reporter.progress(done, len(wanted), _words(evaluator), _eta(begun, start, len(due)))
        evaluator.evaluate(due[start : start + GROUP])
        done = min(len(wanted), done + GROUP)
    reporter.progress(len(wanted), len(wanted), _words(evaluator))


def shared(spec: Mapping, reporter: Reporter, evaluator) -> None:
    """``run`` where others measure: ``evaluator`` has ``key``, ``device_name``, ``times``, ``baselines``,
    ``segments`` and ``all``, as jobs/cluster/schemes.py has."""
    wanted, due = _due(spec, reporter, evaluator.key, evaluator.device_name)
    done = len(wanted) - len(due)

    def say(text: str) -> None:
        reporter.progress(done, len(wanted), text, _first_guess(len(due)))

    evaluator.baselines(say)
    if spec["segments"] and due:
        evaluator.segments(due, say)

    def progress(units: int, total: int, text: str, eta: float | None) -> None:
        reporter.progress(min(len(wanted), done + GROUP * units), len(wanted), text, eta)

    evaluator.all(due, GROUP, progress)
    reporter.progress(len(wanted), len(wanted), _words(evaluator))


def _due(spec: Mapping, reporter: Reporter, key: str, device_name: str | None) -> tuple[list[str], list[str]]:
    """The codes that are wanted, and those of them that have no record here or in an earlier session."""
    wanted = codes(spec["ranges"], spec["limit"], spec["seed"])
    if spec["part"]:
        wanted = wanted[slice(*spec["part"])]
    measured = {impl for there, impl in reporter.skip() if there == key}
    if spec["after"]:
        measured |= sessions.earlier(spec["after"], device_name)
    return wanted, [c for c in wanted if c not in measured]


def _words(evaluator: Evaluator) -> str:
    """The best so far, for the progress line."""
    if not evaluator.times:
        return "measuring"
    best = min(evaluator.times, key=evaluator.times.get)
    return f"best so far {best} with {evaluator.times[best]:.4g} ms"


def _first_guess(count: int) -> float:
    """Seconds before there is a pace: twice the sampling, and the compiler."""
    return 30.0 + 0.05 * count


def _eta(begun: float, done: int, count: int) -> float:
    return (time.monotonic() - begun) / done * (count - done) if done else _first_guess(count)
