"""The verdict of a comparison as charts write it. Texts are those of core.verdict.words."""

from __future__ import annotations

import math

from fusescope.analysis.compare.leaders import compared_time
from fusescope.analysis.statistics import enough
from fusescope.charts import numbers
from fusescope.core.records import BenchSpec, Record, Speedup, Time, short
from fusescope.core.verdict import LEFT_OPEN, of_interval

INCONCLUSIVE = "inconclusive"
_FEW = 40
"""Samples up to which an interval is wide whatever they are (``analysis.statistics.allowance``)."""


def decided(text: str) -> bool:
    """Whether a text claims a difference; nothing else stands out in bold or colour."""
    return text in ("faster", "slower")


def sign(text: str) -> str:
    """A mark for a verdict: never colour alone."""
    return {"faster": "▲", "slower": "▼"}.get(text, "?" if text.startswith(INCONCLUSIVE) else "≈")


def headline(ratio: float, text: str) -> str:
    """ "▲ 1.84× faster", "▼ 10.3× slower", "≈ same within 1 %", "? inconclusive (too noisy)"."""
    if decided(text):
        return f"{sign(text)} {numbers.ratio(ratio if text == 'faster' else 1 / ratio)} {text}"
    return f"{sign(text)} {text}"


def because(record: Record) -> str:
    """Why the comparison of a record with the baseline is inconclusive, as a clause after a colon: ": the
    interval of 18 samples includes 1"; "" where it has a verdict."""
    s, time = record.speedup, compared_time(record)
    if s is None or s.verdict != INCONCLUSIVE:
        return ""
    if unknown(s.low, s.high):
        return f": {no_interval(record)}"
    count = f"the interval of {time.n:,} samples" if time and time.n <= _FEW else "the interval"
    if s.sampled and of_interval(s.median, *s.sampled, s.same_within) != INCONCLUSIVE:
        return f": {widened(record)}"
    if s.low <= 1 <= s.high:
        return f": {count} includes 1"
    return f": {count} ends in the band of {100 * s.same_within:.3g} % around 1"


def unsteady(found: Speedup | None, record: Record, base: Record | None) -> str:
    """What a ratio of two records rests on where sampling did not converge, in parentheses: " (its time did
    not converge)", " (the time of eager did not converge)", " (neither time converged)"; and that the warm
    time is above the cold one. "" where neither is so."""
    told = []
    if found and not found.converged:
        times = [one.time_of(found.of) if one else None for one in (record, base)]
        own, other = (time is not None and not time.converged for time in times)
        if own and other:
            told.append("neither time converged")
        elif own or other:
            whose = "its time" if own else f"the time of {short(base.impl)}"
            told.append(f"{whose} did not converge")
        else:
            told.append("sampling did not converge")
    told += [text] if (text := warm_above_cold(record)) else []
    return f" ({'; '.join(told)})" if told else ""


def warm_above_cold(record: Record) -> str:
    """ "its warm time is above its cold one, 3.54 ms", of which one was disturbed; "" where it is not, by
    more than the factor that sampling leaves open at most."""
    for warm, cold in (("graph", "graph_cold"), ("eager", "eager_cold")):
        pair = record.time_of(warm), record.time_of(cold)
        if all(pair) and pair[0].median > LEFT_OPEN * pair[1].median:
            return f"its warm time is above its cold one, {numbers.time(pair[1].median)}"
    return ""


def evidence(record: Record, word: str) -> str:
    """What stands behind a ratio: its interval, and why it is inconclusive; the reason alone where there is
    no interval. " [0.549, 1.36]: the interval of 14 samples includes 1"."""
    s = record.speedup
    shown = "" if unknown(s.low, s.high) else f" {interval(word, s.low, s.high)}"
    return shown + because(record)


def widened(record: Record) -> str:
    """Why the interval of a record is left wider than its samples are, where those of others of its case may
    not be: "a factor of 1.5 either way is left open because a ratio of 0.987× needs medians known to 1.00 %,
    its own is known to 1.32 %"; "" where it is not."""
    s = record.speedup
    if not (s and s.sampled and s.sampled != (s.low, s.high) and s.median > 0):
        return ""
    why = _not_converged(s.median, compared_time(record))
    return f"a factor of {LEFT_OPEN:g} either way is left open because {why}"


def _not_converged(ratio: float, time: Time | None) -> str:
    """The larger a difference, the less precise the medians need to be that prove it (``enough``)."""
    if time and time.n < BenchSpec.min_samples:
        return f"{time.n:,} {'sample is' if time.n == 1 else 'samples are'} too few to converge"
    needed = enough(BenchSpec.precision, math.log(ratio))
    rule = f"a ratio of {numbers.ratio(ratio)} needs medians known to {numbers.percent(needed)}"
    if time and time.converged:
        return f"{rule}; the baseline's is not, or it took another number of samples per turn"
    width = (time.high - time.low) / time.median if time else 0.0
    if width <= needed:
        return "sampling did not converge"
    return f"{rule}, its own is known to {numbers.percent(width)}"


def interval(text: str, low: float, high: float) -> str:
    """The interval next to a headline: of the slow-down where it says slower; "" where it is unknown."""
    low, high = (1 / high, 1 / low) if text == "slower" and low > 0 else (low, high)
    return "" if unknown(low, high) else f"[{numbers.three(low)}, {numbers.three(high)}]"


def no_interval(record: Record) -> str:
    """Why the interval of a record's speed-up is unknown: "10 samples are too few for an interval"."""
    s, time = record.speedup, compared_time(record)
    if s and s.processes > 1:
        return f"{s.processes} processes that differ this much are too few for an interval"
    return f"{time.n if time else 'its'} samples that differ this much are too few for an interval"


def with_interval(headline: str, text: str, low: float, high: float) -> str:
    """ "▲ 1.84× faster [1.80, 1.88]", or "? inconclusive (too noisy), no interval"."""
    ends = interval(text, low, high)
    return f"{headline} {ends}" if ends else f"{headline}, no interval"


def unknown(low: float, high: float) -> bool:
    """Whether an interval says nothing: its ends are a factor of 10,000 apart or more."""
    return low <= 0 or high >= 1e4 * low
