"""What a comparison of several cases found: how often each is proven fastest, and by how much."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from fusescope.analysis.compare.leaders import leaders, ranked
from fusescope.charts import captions, numbers
from fusescope.charts.bench.speedup import value_of, verdict
from fusescope.charts.colours import short
from fusescope.core.records import Record
from fusescope.core.schema.cases import whole

_NAMED = 3  # implementations of a tie that are named


def cases(records: Iterable[Record]) -> list[list[Record]]:
    """The records of each case, in the order met."""
    groups: dict[str, list[Record]] = {}
    for r in records:
        groups.setdefault(r.case_key, []).append(r)
    return list(groups.values())


def sentence(groups: Sequence[list[Record]], baseline: str, measured: Sequence[Record]) -> str:
    """ "compile is fastest in 3 of 6 cases, v2 in 1; compile and v2 tie in 2; the fastest is 10.5× eager in
    the geometric mean, 6.24× in the worst case (rows=2048)."

    ``measured``: the records before another baseline was chosen, by which the fastest are told: who is
    fastest does not depend on what all are compared with.
    """
    of_case = {group[0].case_key: leaders(group) for group in cases(measured)}
    tops = [top for group in groups if (top := of_case.get(group[0].case_key))]
    if not tops:
        return "No implementation has a valid time."
    if none_faster(groups, tops, baseline):
        return f"None is proven faster than {short(baseline)} in any of {len(tops)} cases."
    clauses = [_won(tops, len(groups)), _ties(tops, len(groups)), _gain(groups, baseline)]
    return "; ".join(clause for clause in clauses if clause) + "."


def counted(records: Sequence[Record], baseline: str) -> str:
    """The same for a list: "compile fastest in 3 of 6, 2 tied"; "none proven faster than eager"."""
    groups = cases(records)
    tops = [top for group in groups if (top := leaders(group))]
    if none_faster(groups, tops, baseline):
        return f"none proven faster than {short(baseline)}"
    won = Counter(short(top[0].impl) for top in tops if len(top) == 1).most_common(1)
    tied = sum(len(top) > 1 for top in tops)
    if not won:
        return f"{tied} of {len(groups)} tied"
    return f"{won[0][0]} fastest in {won[0][1]} of {len(groups)}" + (f", {tied} tied" if tied else "")


def none_faster(groups: Sequence[list[Record]], tops: Sequence[list[Record]], baseline: str) -> bool:
    """Whether nobody is proven fastest in any case, nor faster than the baseline."""
    alone = any(len(top) == 1 for top in tops)
    return not alone and not any(verdict(r, baseline) == "faster" for group in groups for r in group)


def _won(tops: Sequence[list[Record]], total: int) -> str:
    """ "compile is fastest in 3 of 6 cases, v2 in 1": the two that are fastest alone most often."""
    won = Counter(short(top[0].impl) for top in tops if len(top) == 1).most_common(2)
    if not won:
        return ""
    text = f"{won[0][0]} is fastest in {won[0][1]} of {total} cases"
    return text + "".join(f", {name} in {count}" for name, count in won[1:])


def _ties(tops: Sequence[list[Record]], total: int) -> str:
    """ "compile and v2 tie in 2, others in 1"; "two or more tie in 28" where no names stand out."""
    tied = Counter(frozenset(short(r.impl) for r in top) for top in tops if len(top) > 1)
    if not tied:
        return ""
    of = f" of {total} cases" if tied.total() == len(tops) else ""
    most, count = tied.most_common(1)[0]
    if len(most) > _NAMED or 2 * count < tied.total():
        return f"{'Two' if of else 'two'} or more tie in {tied.total()}{of}"  # of all: it begins the sentence
    rest = tied.total() - count
    return f"{_listed(sorted(most))} tie in {count}{of}" + (f", others in {rest}" if rest else "")


def _gain(groups: Sequence[list[Record]], baseline: str) -> str:
    """The geometric mean and the least of the speed-ups of the fastest, over the cases in which the baseline
    has a time; how many these are where they are not all."""
    best = [rows[0] for group in groups if (rows := ranked(group))]
    values = [(value, r) for r in best if (value := value_of(r, baseline))]
    if not values:
        return ""
    mean = math.exp(sum(math.log(v) for v, _ in values) / len(values))
    low, worst = min(values, key=lambda pair: pair[0])
    described = whole(r.case for r in best)
    keys = {k for k in described[0] if len({str(case.get(k)) for case in described}) > 1}
    where = captions.case_of({k: v for k, v in described[best.index(worst)].items() if k in keys})
    of = (
        ""
        if len(values) == len(best)
        else f" of the {_cases(len(values))} in which {short(baseline)} has a time"
    )
    text = f"the fastest is {numbers.ratio(mean)} {short(baseline)} in the geometric mean{of}"
    return (
        f"{text}, {numbers.ratio(low)} in the worst"
        + (" case" if not of else "")
        + (f" ({where})" if where else "")
    )


def _cases(count: int) -> str:
    return "one case" if count == 1 else f"{count} cases"


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"
