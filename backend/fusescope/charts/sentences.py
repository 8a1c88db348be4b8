"""What a comparison found: as one sentence above its chart, and in a few words for a list."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

from fusescope.analysis.compare import ratios
from fusescope.charts import captions, numbers, verdicts
from fusescope.charts.bench.speedup import STATUS_WORDS, value_of, verdict
from fusescope.charts.colours import kind, short
from fusescope.charts.verdicts import compared_time
from fusescope.core.records import Record
from fusescope.core.schema.cases import whole

_FAILED = ("oom", "timeout", "crashed", "error")


def ranked(records: Iterable[Record], baseline: str) -> list[Record]:
    """The correct records of one case with a time, fastest first: by the time of the mode that was compared,
    so that times, order and intervals come from the same samples."""
    timed = [r for r in records if r.status == "ok" and r.ms]
    return sorted(timed, key=lambda r: compared_time(r).median)


def result(records: list[Record], baseline: str) -> str:
    """The result of a comparison; "" without a record.

    One case: what the user's own are against the baseline; the fastest implementation with its speed-up,
    interval and time, the next one, and what failed.
    Several: how often each wins, and the geometric mean and the worst of the best speed-ups.
    """
    groups = _cases(records)
    if not groups:
        return ""
    own = [own_result(r, records, baseline) for r in records if len(groups) == 1 and kind(r.impl) == "user"]
    if own and len(records) == len(own) + any(r.impl == baseline for r in records):
        return " ".join(own)
    found = _of_one(groups[0], baseline) if len(groups) == 1 else _of_several(groups, baseline)
    return " ".join([*own, found, *_problems(records, len(groups))])


def own_result(record: Record, records: Iterable[Record], baseline: str) -> str:
    """A user's implementation of one case: "mine is correct (worst error 8.1e-09, as eager) and 2.5 % slower:
    72.0 µs against 70.0 µs [1.02, 1.03]." """
    name, base = short(record.impl), next((r for r in records if r.impl == baseline), None)
    if record.status == "wrong":
        return f"{name} is wrong and was not timed: {record.reason}."
    if record.status != "ok":
        return f"{name} has no result, {STATUS_WORDS[record.status]}: {record.reason}."
    text = f"{name} is correct{_error(record, base, baseline)}"
    s, took = record.speedup, numbers.time(compared_time(record).median)
    if record is base or s is None or base is None or base.status != "ok":
        return f"{text}: {took}."
    word, against = verdict(record, baseline), numbers.time(base.time_of(s.of).median)
    told = f"{took} against {against} of {short(baseline)}{verdicts.evidence(record, word)}"
    if word.startswith(verdicts.INCONCLUSIVE):
        return f"{text}; whether it is faster is {word}: {told}."
    if not verdicts.decided(word):
        return f"{text}; its time is {word}: {told}."
    return f"{text} and {_difference(s.median, word)}: {told}."


def _error(record: Record, base: Record | None, baseline: str) -> str:
    """ " (worst error 8.1e-09, as eager)"."""
    if not record.accuracy:
        return ""
    error, other = record.accuracy.max_abs, base.accuracy.max_abs if base and base.accuracy else None
    text = f"worst error {error:.2g}"
    if other is not None and record is not base:
        alike = max(error, other) <= 2 * min(error, other)
        text += f", as {short(baseline)}" if alike else f", {short(baseline)} {other:.2g}"
    return f" ({text})"


def _difference(ratio: float, word: str) -> str:
    """ "2.5 % slower" of a small difference, "3.10× faster" of a large one."""
    ratio = 1 / ratio if word == "slower" else ratio
    return f"{100 * (ratio - 1):.2g} % {word}" if ratio < 1.5 else f"{numbers.ratio(ratio)} {word}"


def proven(rows: Iterable[Record], baseline: str) -> Record | None:
    """The first of ``ranked`` records that is proven faster than the baseline; None where none is."""
    return next((r for r in rows if verdict(r, baseline) == "faster"), None)


def winner(rows: list[Record], baseline: str) -> Record | None:
    """Which of the ``ranked`` records of one case is the fastest; None where sampling was too noisy to say,
    or where the first is not proven to differ from the baseline."""
    if not rows or noisy(rows, baseline):
        return None
    first = rows[0]
    return first if first.impl == baseline or not first.speedup else proven(rows[:1], baseline)


def best(records: Iterable[Record], baseline: str) -> float | None:
    """The largest speed-up that is proven in any case."""
    found = [value_of(r, baseline) for r in records if verdict(r, baseline) == "faster"]
    return max(found, default=None)


def against(records: list[Record], baseline: str, reference: str) -> str:
    """The fastest of one case against ``reference``: "v3_hopper, 25.4 µs: 2.27× sdpa (57.7 µs); next
    flash_varlen, 39.3 µs".

    The paired ratio where the reference is the baseline of the run; else the ratio of the medians. A
    difference that is not proven is no speed-up: "v5_parts has the lowest time, 203 µs, but is inconclusive
    (too noisy) against sdpa (264 µs)". Where two peers lead, our first kernel is named behind them.
    """
    rows = ranked(records, baseline)
    if not rows:
        return "no implementation has a valid time"
    first, rest = rows[0], [r for r in rows[1:] if r.impl != reference]
    known = next((r for r in rows if r.impl == reference), None)
    text = f"{short(first.impl)}, {numbers.time(first.ms)}"
    said = [first]
    if first.impl == reference:
        if rest and _over(rest[0], first, baseline)[1] != "slower":
            second, *rest = rest
            said.append(second)
            text = f"{short(first.impl)} has the lowest time, {numbers.time(first.ms)}, but is not proven "
            text += f"faster than {short(second.impl)} ({numbers.time(second.ms)})"
        else:
            text += ", is the fastest"
    elif known:
        value, word = _over(first, known, baseline)
        other = f"{short(reference)} ({numbers.time(known.ms)})"
        if word == "faster":
            text += f": {numbers.ratio(value)} {other}"
        elif word.startswith("same"):
            text += f": {word} as {other}"
        else:
            text = f"{short(first.impl)} has the lowest time, {numbers.time(first.ms)}, but is {word} "
            text += f"against {other}" + (verdicts.evidence(first, word) if known.impl == baseline else "")
    ours = next((r for r in rows if kind(r.impl) == "ours"), None)
    named = [("next", rest[0])] if rest else []
    if ours and ours not in (*said, *rest[:1]) and ours.impl != reference:
        named.append(("our fastest", ours))
    if _quantised(first) and (whole := next((r for r in rows if not _quantised(r)), None)):
        named = [("without quantisation", whole), *(pair for pair in named if pair[1] is not whole)]
    return text + "".join(f"; {word} {short(r.impl)}, {numbers.time(r.ms)}" for word, r in named)


def _quantised(record: Record) -> bool:
    """Whether an execution mode has other weights, or a cache in another dtype, than the model's own."""
    return bool((record.extra or {}).get("quantised"))


def _over(record: Record, other: Record, baseline: str) -> tuple[float, str]:
    """(speed-up over another record of the case, its verdict)."""
    if other.impl == baseline and record.speedup:
        return record.speedup.median, verdict(record, baseline)
    found = ratios.over(other, record, record.speedup.of if record.speedup else record.main)
    return other.ms / record.ms, found.words if found else "not compared"


def in_short(records: list[Record], baseline: str) -> str:
    """What ``result`` says, for a list: "v4_scheduled 4.56× sdpa"; of several cases "v4_scheduled fastest in
    24 of 40"; how many were wrong; "" where nothing was timed."""
    timed = [rows for group in _cases(records) if (rows := ranked(group, baseline))]
    if not timed:
        return ""
    if len(timed) > 1:
        won = Counter(first.impl for rows in timed if (first := winner(rows, baseline))).most_common(1)
        none = f"none proven faster than {short(baseline)}"
        text = f"{short(won[0][0])} fastest in {won[0][1]} of {len(timed)}" if won else none
    elif first := proven(timed[0], baseline):
        text = f"{short(first.impl)} {numbers.ratio(value_of(first, baseline))} {short(baseline)}"
    else:
        text = f"none proven faster than {short(baseline)}"
    wrong = sum(r.status == "wrong" for r in records)
    return text + (f", {wrong} wrong" if wrong else "")


def _cases(records: Iterable[Record]) -> list[list[Record]]:
    groups: dict[str, list[Record]] = {}
    for r in records:
        groups.setdefault(r.case_key, []).append(r)
    return list(groups.values())


def _of_one(records: list[Record], baseline: str) -> str:
    rows = ranked(records, baseline)
    if not rows:
        return "No implementation has a valid time."
    first, others = rows[0], rows[1:]
    sure = proven(rows, baseline)
    if sure and sure is not first and first.impl != baseline:  # the lowest time may be noise
        text = f"{short(sure.impl)} is correct and proven faster: {_ratio(sure, baseline)} {short(baseline)}"
        text += f" {verdicts.interval('faster', sure.speedup.low, sure.speedup.high)}"
        text += f", {numbers.time(compared_time(sure).median)}; {short(first.impl)} has a lower time, "
        return f"{text}{numbers.time(compared_time(first).median)}, but is {verdict(first, baseline)}."
    name, took, word = short(first.impl), numbers.time(compared_time(first).median), verdict(first, baseline)
    if first.impl == baseline and noisy(rows, baseline):
        text = f"{_right(records)}; none is proven faster than {name}, the baseline: {took}"
    elif first.impl == baseline:
        text = f"{name}, the baseline, is correct and fastest: {took}"
    elif word == "faster":
        text = f"{name} is correct and fastest: {_ratio(first, baseline)} {short(baseline)}"
        text += f" {verdicts.interval(word, first.speedup.low, first.speedup.high)}, {took}"
    elif first.speedup:
        text = f"{_right(records)}; none is proven faster than {short(baseline)}: "
        text += f"{name} is first with {took}, {word}"
        text += verdicts.evidence(first, word)
    else:
        text = f"{name} has the lowest time, {took}; {short(baseline)} has none to compare with"
    return f"{text}{_next(first, others, baseline)}."


def _right(records: list[Record]) -> str:
    """ "All 5 are correct", or "4 are correct" where others have no result."""
    count = sum(r.status == "ok" for r in records)
    every = count == len(records) > 1
    return f"{'All ' * every}{count} {'is' if count == 1 else 'are'} correct"


def noisy(records: Iterable[Record], baseline: str) -> bool:
    """Whether, of one case, sampling was too noisy to say whether the first, or next to the baseline the
    second, differs from the baseline: the order is then no result."""
    groups = _cases(records)
    rows = ranked(groups[0], baseline) if len(groups) == 1 else []
    judged = rows[1:2] if rows and rows[0].impl == baseline else rows[:1]
    return any(verdict(r, baseline).startswith(verdicts.INCONCLUSIVE) for r in judged)


def _next(first: Record, others: list[Record], baseline: str) -> str:
    """The second, and whether it may be as fast as the first."""
    if not others or verdict(first, baseline).startswith(verdicts.INCONCLUSIVE):
        return ""
    second = others[0]
    ratio = "(the baseline)" if second.impl == baseline else _ratio(second, baseline)
    if ratio is None:
        return f"; next {short(second.impl)}, {numbers.time(second.ms)}"
    a, b = first.speedup, second.speedup
    tied = a and b and first.impl != baseline and b.high >= a.low
    # of speed-ups over a noisy baseline; apart are also those whose own times are
    tied = tied and compared_time(second).low <= compared_time(first).high
    return (
        f"; {short(second.impl)} may be as fast, {ratio}" if tied else f"; next {short(second.impl)} {ratio}"
    )


def _of_several(groups: list[list[Record]], baseline: str) -> str:
    ordered = [rows for group in groups if (rows := ranked(group, baseline))]
    if not ordered:
        return "No implementation has a valid time."
    won = [first for rows in ordered if (first := winner(rows, baseline))]
    if not won:
        return f"None is proven faster than {short(baseline)} in any of {len(ordered)} cases."
    wins = Counter(short(r.impl) for r in won).most_common(2)
    text = f"{wins[0][0]} is fastest in {wins[0][1]} of {len(groups)} cases"
    text += f", {wins[1][0]} in {wins[1][1]}" if len(wins) > 1 else ""
    if unclear := len(ordered) - len(won):
        text += f", none is proven so in {unclear}"
    best = [rows[0] for rows in ordered]
    values = {r.case_key: (value_of(r, baseline), r) for r in best if value_of(r, baseline)}
    if not values:
        return f"{text}."
    mean = math.exp(sum(math.log(v) for v, _ in values.values()) / len(values))
    low, worst = min(values.values(), key=lambda pair: pair[0])
    cases = whole(r.case for r in best)
    keys = {k for k in cases[0] if len({str(case.get(k)) for case in cases}) > 1}
    where = captions.case_of({k: v for k, v in cases[best.index(worst)].items() if k in keys})
    return (
        f"{text}; the fastest is {numbers.ratio(mean)} {short(baseline)} in the geometric mean, "
        f"{numbers.ratio(low)} in the worst case" + (f" ({where})." if where else ".")
    )


def _ratio(record: Record, baseline: str) -> str | None:
    """ "4.56×", "1.12× slower", or "(inconclusive)" and the like; None without a speed-up."""
    value, word = value_of(record, baseline), verdict(record, baseline)
    if value is None or word not in ("faster", "slower"):
        return None if value is None else f"({word})"
    return numbers.ratio(value) if word == "faster" else f"{numbers.ratio(1 / value)} slower"


def _problems(records: list[Record], cases: int) -> list[str]:
    """What was wrong, failed or is unavailable, by name where it is one or two."""
    total = len({r.impl for r in records})
    kinds = (
        ("failed the check and was not timed", "failed the check and were not timed", ("wrong",)),
        ("failed to run", "failed to run", _FAILED),
        ("unavailable", "unavailable", ("unsupported",)),
    )
    texts = []
    for one, many, statuses in kinds:
        names = list(dict.fromkeys(short(r.impl) for r in records if r.status in statuses))
        if not names:
            continue
        named = f" ({' and '.join(names)})" if len(names) <= 2 and statuses != ("unsupported",) else ""
        place = " in some cases" if cases > 1 else ""
        texts.append(f"{len(names)} of {total} {one if len(names) == 1 else many}{place}{named}.")
    return texts
