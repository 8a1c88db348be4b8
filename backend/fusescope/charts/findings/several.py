"""What a comparison of several cases found: how often each is proven fastest, and by how much."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fusescope.analysis.compare.leaders import leaders, ranked, undecided
from fusescope.charts import captions, numbers, verdicts
from fusescope.charts.bench.speedup import value_of, verdict
from fusescope.charts.colours import kind, short
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
    """ "compile is fastest in 3 of 6 cases, v2 in 1; compile and v2 tie in 1; inconclusive in 1 (compile or
    v2); the fastest is 10.5× eager in the geometric mean, 6.24× in the worst case (rows=2048)."

    ``measured``: the records before another baseline was chosen, by which the fastest are told: who is
    fastest does not depend on what all are compared with.
    """
    of_case = {group[0].case_key: leaders(group) for group in cases(measured)}
    tops = [top for group in groups if (top := of_case.get(group[0].case_key))]
    if not tops:
        return "No implementation has a valid time."
    if none_faster(groups, tops, baseline):
        return f"None is proven faster than {short(baseline)} in any of {len(tops)} cases."
    clauses = [*_Leads.of(tops, baseline).clauses(len(groups)), _gain(groups, baseline, tops)]
    return "; ".join(clause for clause in clauses if clause) + "."


def counted(records: Sequence[Record], baseline: str) -> str:
    """The same for a list, which has room for a name with its counts: "compile fastest in 3 of 6, 2 tied";
    "ours fastest in 6 of 8" where kernels of ours share a lead; what is inconclusive only where nobody
    leads, "3 of 3 inconclusive"; "none proven faster than eager"."""
    groups = cases(records)
    tops = [top for group in groups if (top := leaders(group))]
    if none_faster(groups, tops, baseline):
        return f"none proven faster than {short(baseline)}"
    found, total = _Leads.of(tops, baseline), len(groups)
    tied = found.same.total()
    if found.together:
        ours = sum(count for impl, count in found.alone.items() if kind(impl) == "ours")
        first = f"ours fastest in {ours + found.together.total()} of {total}"
    elif found.alone:
        name, count = found.alone.most_common(1)[0]
        first = f"{short(name)} fastest in {count} of {total}"
    else:
        if not found.open:
            return f"{tied} of {total} tied"
        first = f"{found.open.total()} of {total} {verdicts.INCONCLUSIVE}"
    return first + (f", {tied} tied" if tied else "")


def none_faster(groups: Sequence[list[Record]], tops: Sequence[list[Record]], baseline: str) -> bool:
    """Whether nobody is proven fastest in any case, nor faster than the baseline."""
    alone = any(len(top) == 1 for top in tops)
    return not alone and not any(verdict(r, baseline) == "faster" for group in groups for r in group)


@dataclass(frozen=True)
class _Leads:
    """How often an implementation leads a case alone, several of ours together without a peer or the baseline
    (two versions of one kernel are no tie with anybody), and of any others the same or inconclusive."""

    alone: Counter[str]
    together: Counter[frozenset[str]]
    same: Counter[frozenset[str]]
    open: Counter[frozenset[str]]

    @classmethod
    def of(cls, tops: Sequence[list[Record]], baseline: str) -> _Leads:
        found = cls(Counter(), Counter(), Counter(), Counter())
        for top in tops:
            names = frozenset(r.impl for r in top)
            if len(top) == 1:
                found.alone[top[0].impl] += 1
            elif baseline not in names and all(kind(name) == "ours" for name in names):
                found.together[names] += 1
            else:
                (found.same if undecided(top) == "same" else found.open)[names] += 1
        return found

    def clauses(self, total: int) -> list[str]:
        """What there is of: "compile is fastest in 3 of 6 cases, v2 in 1", "v5 and v6, both ours, are fastest
        in 2", "compile and v2 tie in 2, others in 1", "inconclusive in 1 (compile or v2)"; the first of them
        begins the sentence and says of how many cases."""
        found, of = [], f" of {total} cases"
        if self.alone:
            (name, count), *others = self.alone.most_common(2)
            found.append(f"{short(name)} is fastest in {count}{of}")
            found[0] += "".join(f", {short(other)} in {n}" for other, n in others)
        for many, each in ((self.together, _lead), (self.same, _tie), (self.open, _open)):
            if many:
                found.append(each(many, "" if found else of))
        return found


def _lead(many: Counter[frozenset[str]], of: str) -> str:
    """ "v5 and v6, both ours, are fastest in 4 of 8 cases, others of ours in 2"."""
    names, count = many.most_common(1)[0]
    if len(names) > _NAMED or 2 * count < many.total():
        return f"{'Several' if of else 'several'} of ours are fastest in {many.total()}{of}"
    both = "both" if len(names) == 2 else "all"
    rest = many.total() - count
    return f"{_listed(names)}, {both} ours, are fastest in {count}{of}" + (
        f", others of ours in {rest}" if rest else ""
    )


def _tie(many: Counter[frozenset[str]], of: str) -> str:
    """ "compile and v2 tie in 2, others in 1"; "two or more tie in 28" where no names stand out."""
    names, count = many.most_common(1)[0]
    if len(names) > _NAMED or 2 * count < many.total():
        return f"{'Two' if of else 'two'} or more tie in {many.total()}{of}"
    rest = many.total() - count
    return f"{_listed(names)} tie in {count}{of}" + (f", others in {rest}" if rest else "")


def _open(many: Counter[frozenset[str]], of: str) -> str:
    """ "inconclusive in 1 (compile or v2)", "inconclusive in 3" where no names stand out; where a sentence
    begins so "Which is fastest is inconclusive in 3 of 3 cases"."""
    names = next(iter(many))
    named = f" ({_listed(names, 'or')})" if len(many) == 1 and len(names) <= _NAMED else ""
    return f"{'Which is fastest is ' if of else ''}{verdicts.INCONCLUSIVE} in {many.total()}{of}{named}"


def _gain(groups: Sequence[list[Record]], baseline: str, tops: Sequence[list[Record]]) -> str:
    """The geometric mean and the least of the speed-ups of the fastest, over the cases in which the baseline
    has a time; how many these are where they are not all. Where the baseline is the fastest of a case that is
    no speed-up over itself: then of the one other that leads most cases."""
    best = [rows[0] for group in groups if (rows := ranked(group))]
    name = "the fastest"
    if any(r.impl == baseline for r in best):
        name = _foremost(groups, baseline, tops)
        best = [r for group in groups for r in ranked(group) if r.impl == name]
    values = [(value, r) for r in best if (value := value_of(r, baseline))]
    if not values:
        return ""
    mean = math.exp(sum(math.log(v) for v, _ in values) / len(values))
    low, worst = min(values, key=lambda pair: pair[0])
    described = whole(r.case for r in best)
    keys = {k for k in described[0] if len({str(case.get(k)) for case in described}) > 1}
    where = captions.case_of({k: v for k, v in described[best.index(worst)].items() if k in keys})
    timed = sum(any(value_of(r, baseline) for r in group) for group in groups)
    of = ""
    if len(values) != len(groups):
        has = f"{short(baseline)} has a time" if len(values) == timed else "both have a time"
        of = f" of the {_cases(len(values))} in which {has}"
    text = f"{short(name)} is {_against(mean, baseline)} in the geometric mean{of}"
    text += f", {numbers.ratio(low) if low >= 1 else f'{numbers.ratio(1 / low)} slower'} in the worst"
    return text + (" case" if not of else "") + (f" ({where})" if where else "")


def _foremost(groups: Sequence[list[Record]], baseline: str, tops: Sequence[list[Record]]) -> str:
    """Of all but the baseline the one that leads most cases, alone or with others, and of equals the one with
    the higher speed-ups."""
    led = Counter(r.impl for top in tops for r in top)
    logs: dict[str, float] = {}
    for r in (r for group in groups for r in group):
        if r.impl != baseline and (value := value_of(r, baseline)):
            logs[r.impl] = logs.get(r.impl, 0.0) + math.log(value)
    return max(logs, key=lambda impl: (led[impl], logs[impl]), default="")


def _against(value: float, baseline: str) -> str:
    """ "1.08× attention", "1.02× slower than attention"."""
    slower = f"{numbers.ratio(1 / value)} slower than {short(baseline)}"
    return f"{numbers.ratio(value)} {short(baseline)}" if value >= 1 else slower


def _cases(count: int) -> str:
    return "one case" if count == 1 else f"{count} cases"


def _listed(impls: Iterable[str], word: str = "and") -> str:
    names = sorted(map(short, impls))
    return f"{', '.join(names[:-1])} {word} {names[-1]}"
