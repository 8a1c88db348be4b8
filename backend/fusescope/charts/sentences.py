"""What a comparison found: as one sentence above its chart."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fusescope.analysis.compare import ratios
from fusescope.analysis.compare.leaders import leaders, ranked
from fusescope.charts import numbers, verdicts
from fusescope.charts.bench.speedup import STATUS_WORDS, value_of, verdict
from fusescope.charts.colours import kind, short
from fusescope.charts.findings import several
from fusescope.charts.findings.brief import difference, difference_interval
from fusescope.charts.verdicts import compared_time
from fusescope.core.records import Record

_FAILED = ("oom", "timeout", "crashed", "error")
_PEER = "fastest peer"


def result(records: list[Record], baseline: str, measured: list[Record] | None = None) -> str:
    """The result of a comparison; "" without a record.

    One case: what the user's own are against the baseline; the fastest implementation with its speed-up,
    interval and time, the next one, and what failed.
    Several: how often each is proven fastest, and the geometric mean and the worst of the best speed-ups.
    measured: the same records over the run's own baseline, where ``baseline`` is another one; by these
    it is decided which are the fastest.
    """
    groups = several.cases(records)
    if not groups:
        return ""
    own = [own_result(r, records, baseline) for r in records if len(groups) == 1 and kind(r.impl) == "user"]
    if own and len(records) == len(own) + any(r.impl == baseline for r in records):
        return " ".join(own)
    measured = measured or records
    if len(groups) > 1:
        found = several.sentence(groups, baseline, measured)
    else:
        key = records[0].case_key
        found = _of_one(records, baseline, leaders(r for r in measured if r.case_key == key))
    return " ".join([*own, found, *_problems(records, len(groups))])


def own_result(record: Record, records: Iterable[Record], baseline: str) -> str:
    """A user's implementation of one case: "mine is correct (worst error 8.1e-09, as eager) and 2.5 % slower
    [2.0 %, 3.1 %]: 72.0 µs against 70.0 µs of eager." """
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
    told, decided = f"{took} against {against} of {short(baseline)}", verdicts.decided(word)
    doubt = verdicts.unsteady(s if decided else None, record, base)  # else the evidence says so
    if decided:
        ends = difference_interval(s.median, word, s.low, s.high)
        return f"{text} and {difference(s.median, word)}{f' {ends}' * bool(ends)}{doubt}: {told}."
    told += f", {numbers.ratio(s.median)}{verdicts.evidence(record, word)}"
    if word.startswith(verdicts.INCONCLUSIVE):
        return f"{text}; whether it is faster is {word}{doubt}: {told}."
    return f"{text}; its time is {word}{doubt}: {told}."


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


def proven(rows: Iterable[Record], baseline: str) -> Record | None:
    """The first of ``ranked`` records that is proven faster than the baseline; None where none is."""
    return next((r for r in rows if verdict(r, baseline) == "faster"), None)


def best(records: Iterable[Record], baseline: str) -> float | None:
    """The largest speed-up that is proven in any case."""
    found = [value_of(r, baseline) for r in records if verdict(r, baseline) == "faster"]
    return max(found, default=None)


def against(
    records: list[Record], baseline: str, reference: str, more: Callable[[Record], str] = lambda record: ""
) -> str:
    """The fastest of one case against ``reference``: "v3_hopper, 26.1 µs: 2.22× [2.20, 2.24] sdpa (57.9 µs);
    next flash_varlen, 39.4 µs".

    The paired ratio where the reference is the baseline of the run; else the ratio of the medians. A
    difference that is not proven is no speed-up: "v5_parts has the lowest time, 203 µs, but is inconclusive
    (too noisy) against sdpa (264 µs)". Where two peers lead, our first kernel is named behind them; where two
    of ours do, the fastest peer and how far the first one is ahead of it.
    more: what stands behind a time, as ", 167 tokens/s".
    """
    time = lambda record: numbers.time(compared_time(record).median) + more(record)  # noqa: E731
    rows = ranked(records)
    if not rows:
        return "no implementation has a valid time"
    first, rest = rows[0], [r for r in rows[1:] if r.impl != reference]
    known = next((r for r in rows if r.impl == reference), None)
    text = f"{short(first.impl)}, {time(first)}"
    said = [first]
    if first.impl == reference:
        if rest and _over(rest[0], first, baseline)[1] != "slower":
            second, *rest = rest
            said.append(second)
            text = f"{short(first.impl)} has the lowest time, {time(first)}, but is not proven "
            text += f"faster than {short(second.impl)} ({numbers.time(compared_time(second).median)})"
        else:
            text += ", is the fastest"
    elif known:
        value, word, ends, doubt = _over(first, known, baseline)
        other = f"{short(reference)} ({numbers.time(compared_time(known).median)})"
        if word == "faster":
            text += f": {numbers.ratio(value)}{ends} {other}{doubt}"
        elif word.startswith("same"):
            text += f": {word} as {other}"
        else:
            text = f"{short(first.impl)} has the lowest time, {time(first)}, but is {word} "
            text += f"against {other}" + (verdicts.evidence(first, word) if known.impl == baseline else "")
    ours = next((r for r in rows if kind(r.impl) == "ours"), None)
    named = [("next", rest[0])] if rest else []
    if ours and ours not in (*said, *rest[:1]) and ours.impl != reference:
        named.append(("our fastest", ours))
    peer = next((r for r in rows if kind(r.impl) == "peer"), None)
    if first is not peer and kind(first.impl) == "ours" and peer and peer not in (*said, *rest[:1], known):
        named.append((_PEER, peer))
    if quantised(first) and (whole := next((r for r in rows if not quantised(r)), None)):
        named = [("without quantisation", whole), *(pair for pair in named if pair[1] is not whole)]
    said = (
        _peer(first, r, baseline, time(r)) if word == _PEER else _behind(first, r, baseline, word, time(r))
        for word, r in named
    )
    return "; ".join([text, *said])


def _peer(first: Record, peer: Record, baseline: str, took: str) -> str:
    """ "2.68× [2.66, 2.70] the fastest peer, flex_flash (305 µs)"; "fastest peer sdpa, 264 µs: inconclusive"
    where the first one is not proven to lead it."""
    value, word, ends, doubt = _over(first, peer, baseline)
    if word == "faster":
        return f"{numbers.ratio(value)}{ends} the {_PEER}, {short(peer.impl)} ({took}){doubt}"
    return f"{_PEER} {short(peer.impl)}, {took}" + ("" if word == "not compared" else f": {word}")


def _behind(first: Record, other: Record, baseline: str, word: str, took: str) -> str:
    """ "next flash_varlen, 39.4 µs"; "flash_varlen may be as fast, 39.4 µs" where it is not proven slower."""
    open_ = word == "next" and _over(first, other, baseline)[1] not in ("faster", "not compared")
    return f"{short(other.impl)} may be as fast, {took}" if open_ else f"{word} {short(other.impl)}, {took}"


def quantised(record: Record) -> bool:
    """Whether an execution mode has other weights, or a cache in another dtype, than the model's own."""
    return bool((record.extra or {}).get("quantised"))


def _over(record: Record, other: Record, baseline: str) -> tuple[float, str, str, str]:
    """(speed-up over another record of the case, its verdict, its interval as " [2.25, 2.29]" or "", and what
    is unsteady about it)."""
    if other.impl == baseline and record.speedup:
        found, word = record.speedup, verdict(record, baseline)
    else:
        found = ratios.over(other, record, record.speedup.of if record.speedup else record.main)
        word = found.words if found else "not compared"
    value = found.median if found else compared_time(other).median / compared_time(record).median
    ends = verdicts.interval(word, found.low, found.high) if found else ""
    return value, word, f" {ends}" if ends else "", verdicts.unsteady(found, record, other)


def _of_one(records: list[Record], baseline: str, tops: list[Record]) -> str:
    """``tops``: those that may be the fastest; one alone is."""
    rows = ranked(records)
    if not rows:
        return "No implementation has a valid time."
    first, others = rows[0], rows[1:]
    base = next((r for r in rows if r.impl == baseline), None)
    doubt = lambda record: verdicts.unsteady(record.speedup, record, base)  # noqa: E731
    sure = proven(rows, baseline)
    if sure and sure is not first and first.impl != baseline:  # the lowest time may be noise
        text = f"{short(sure.impl)} is correct and proven faster: {_ratio(sure, baseline)} {short(baseline)}"
        text += f" {verdicts.interval('faster', sure.speedup.low, sure.speedup.high)}{doubt(sure)}"
        text += f", {numbers.time(compared_time(sure).median)}; {short(first.impl)} has a lower time, "
        return f"{text}{numbers.time(compared_time(first).median)}, but is {verdict(first, baseline)}."
    name, took, word = short(first.impl), numbers.time(compared_time(first).median), verdict(first, baseline)
    tied = {r.impl for r in tops} if len(tops) > 1 else set()
    is_best = f"is correct and {'has the lowest time' if first.impl in tied else 'fastest'}"
    if first.impl == baseline and noisy(rows, baseline):
        text = f"{_right(records)}; none is proven faster than {name}, the baseline: {took}"
    elif first.impl == baseline:
        text = f"{name}, the baseline, {is_best}: {took}"
    elif word == "faster":
        text = f"{name} {is_best}: {_ratio(first, baseline)} {short(baseline)}"
        text += f" {verdicts.interval(word, first.speedup.low, first.speedup.high)}{doubt(first)}, {took}"
    elif first.speedup:
        text = f"{_right(records)}; none is proven faster than {short(baseline)}: "
        text += f"{name} is first with {took}, {word}"
        text += verdicts.evidence(first, word)
    else:
        text = f"{name} has the lowest time, {took}; {short(baseline)} has none to compare with"
    return f"{text}{_next(first, others, base, tied, baseline)}."


def _right(records: list[Record]) -> str:
    """ "All 5 are correct", or "4 are correct" where others have no result."""
    count = sum(r.status == "ok" for r in records)
    every = count == len(records) > 1
    return f"{'All ' * every}{count} {'is' if count == 1 else 'are'} correct"


def noisy(records: Iterable[Record], baseline: str) -> bool:
    """Whether, of one case, sampling was too noisy to say whether the first, or next to the baseline the
    second, differs from the baseline: the order is then no result."""
    groups = several.cases(records)
    rows = ranked(groups[0]) if len(groups) == 1 else []
    return any(verdict(r, baseline).startswith(verdicts.INCONCLUSIVE) for r in _judged(rows, baseline))


def firm(records: Iterable[Record], baseline: str) -> bool:
    """Whether the sentence may stand out: unless, of one case, the order is no result or rests on sampling
    that did not converge."""
    groups = several.cases(records)
    judged = _judged(ranked(groups[0]), baseline) if len(groups) == 1 else []
    return not any(
        verdict(r, baseline).startswith(verdicts.INCONCLUSIVE) or (r.speedup and not r.speedup.converged)
        for r in judged
    )


def _judged(rows: list[Record], baseline: str) -> list[Record]:
    return rows[1:2] if rows and rows[0].impl == baseline else rows[:1]


def _next(first: Record, others: list[Record], base: Record | None, tied: set[str], baseline: str) -> str:
    """The second; where it may be as fast as the first with its time, the order of the two: its ratio to the
    baseline, of pairs of samples, may be the larger one."""
    if not others or verdict(first, baseline).startswith(verdicts.INCONCLUSIVE):
        return ""
    second = others[0]
    name, took = short(second.impl), numbers.time(compared_time(second).median)
    if first.impl != baseline and {first.impl, second.impl} <= tied:
        return f"; {name}{', the baseline,' * (second.impl == baseline)} may be as fast, {took}"
    if second is base:
        return f"; next {name} (the baseline)"
    ratio = _ratio(second, baseline)
    if ratio is None:
        return f"; next {name}, {took}"
    decided = verdicts.decided(verdict(second, baseline))
    return f"; next {name} {ratio}{verdicts.unsteady(second.speedup, second, base) * decided}"


def _ratio(record: Record, baseline: str) -> str | None:
    """ "4.56×", "1.12× slower", or "(inconclusive, too noisy)" and the like; None without a speed-up."""
    value, word = value_of(record, baseline), verdict(record, baseline)
    if value is None or word not in ("faster", "slower"):
        return None if value is None else f"({word.replace(' (', ', ').replace(')', '')})"
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
