"""What a comparison found, in a few words for a list of runs."""

from __future__ import annotations

from collections.abc import Sequence

from fusescope.analysis.compare.leaders import ranked
from fusescope.charts import numbers, verdicts
from fusescope.charts.bench.speedup import value_of, verdict
from fusescope.charts.colours import kind, short
from fusescope.charts.findings import several
from fusescope.core.records import Record


def in_short(records: Sequence[Record], baseline: str) -> str:
    """What the sentence above the chart says, for a list: "v4_scheduled 4.56× sdpa", "mine.py:soft 3.28×
    slower than eager"; of several cases "v4_scheduled fastest in 24 of 40"; how many were wrong; "" where
    nothing was timed."""
    groups = several.cases(records)
    timed = [rows for group in groups if (rows := ranked(group))]
    if not timed:
        return ""
    text = several.counted(records, baseline) if len(groups) > 1 else _of_one(timed[0], baseline)
    wrong = sum(r.status == "wrong" for r in records)
    return text + (f", {wrong} wrong" if wrong else "")


def difference(value: float, word: str) -> str:
    """ "2.5 % slower" of a small difference, "3.10× faster" of a large one."""
    value = 1 / value if word == "slower" else value
    return f"{100 * (value - 1):.2g} % {word}" if value < 1.5 else f"{numbers.ratio(value)} {word}"


def difference_interval(value: float, word: str, low: float, high: float) -> str:
    """The interval of a ratio in the unit of its ``difference``: "[2.0 %, 3.1 %]", "[2.90, 3.10]"; ""
    where it is unknown."""
    ends = verdicts.interval(word, low, high)
    if not ends or max(value, 1 / value) >= 1.5:
        return ends
    low, high = (100 * (end - 1) for end in ((1 / high, 1 / low) if word == "slower" else (low, high)))
    return f"[{low:.2g} %, {high:{'.2g' if high < 100 else '.0f'}} %]"


def _of_one(rows: Sequence[Record], baseline: str) -> str:
    """Of one case the user's own, else the fastest that is proven faster than the baseline, else the next."""
    others = [r for r in rows if r.impl != baseline and r.speedup]
    own = next((r for r in others if kind(r.impl) == "user"), None)
    faster = next((r for r in others if verdict(r, baseline) == "faster"), None)
    said = own or faster or next(iter(others), None)
    if said is None:
        return f"none proven faster than {short(baseline)}"
    name, word, base = short(said.impl), verdict(said, baseline), short(baseline)
    if said is faster:
        return f"{name} {numbers.ratio(value_of(said, baseline))} {base}"
    if word in ("faster", "slower"):
        return f"{name} {difference(value_of(said, baseline), word)} than {base}"
    if word.startswith("same"):
        return f"{name} {word} as {base}"
    return f"none proven faster than {base}" if own is None else f"{name} not proven faster than {base}"
