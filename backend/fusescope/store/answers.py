"""Which measured case answers a question, and what differs: over all runs, from the index alone."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from fusescope.core.kept.bounded_cache import BoundedCache
from fusescope.core.schema.cases import ABSENT, FOLLOWS, value
from fusescope.store import library

_FAR = {"device": 1000.0, "dtype": 40.0, "sizes": 2000.0, "phase": 4000.0}
"""Distances of settings that no other setting makes up for, in doublings of a size. A token's time says
nothing of a prompt's, whatever the device."""
_HELPFUL = 8.0
"""Doublings of sizes, all together, up to which a case says something: beyond it comes after any that is
nearer, on whatever device."""
_OTHER_WORD, _OTHER_DETAIL = 20.0, 1.0
_WEIGHT = {"head_dim": 3.0}
"""Of a doubling, 1 where nothing is said: another head size is another kernel, not more of the same work."""
_ENOUGH = 0.5
"""Share of the most implementations measured on a case that a newer run needs in order to be preferred."""


_kept: BoundedCache[list[tuple]] = BoundedCache(64)

Meaning = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""A case with its texts written out, as the defaults of a mask at the case's length. Values that differ as
they stand and are equal written out do not differ."""


@dataclass(frozen=True)
class Question:
    """The question: an operator or a whole model ("model:bert-base") on one case.

    case: the parameters that matter; those left out may have any value, except options that a case leaves out
    at their defaults (schema.cases.ABSENT); one that the measured case lacks differs.
    dtype, device_name: None for any.
    """

    op: str
    case: Mapping[str, Any]
    dtype: str | None = None
    device_name: str | None = None


@dataclass(frozen=True)
class Found:
    """A measured case. differs: {setting: (asked, measured)}, empty where it is the requested case; away: how
    far it is from that, by which the nearest is found."""

    run: str
    case: Mapping[str, Any]
    dtype: str
    device_name: str
    implementations: int  # with a valid time
    differs: Mapping[str, tuple[Any, Any]]
    away: tuple[float, float] = (0.0, 0.0)


def find(
    question: Question,
    most: int = 1,
    recorded: bool | None = None,
    impls: Sequence[str] = (),
    meaning: Meaning = dict,
) -> list[Found]:
    """The measured cases nearest to the question, at most one run for each, nearest first.

    Of several runs of one case the newest counts that has at least half as many implementations as the
    largest. recorded: only runs that ship with the project, or only others; impls: only runs with a time
    of each. RunError without duckdb.
    """
    runs_of: dict[tuple, list[tuple]] = {}
    for run, case, dtype, device, count, created in _measured(question.op, recorded, impls):
        key = (json.dumps(case, sort_keys=True), dtype, device)
        runs_of.setdefault(key, []).append((run, case, dtype, device, count, created))
    chosen = [_preferred(runs_of[key]) for key in sorted(runs_of)]  # of equals always the same one
    ranked = sorted(chosen, key=lambda row: (*_distance(question, row, meaning), -(row[5] or 0)))
    return [_found(question, row, meaning) for row in ranked[:most]]


def _measured(op: str, recorded: bool | None, impls: Sequence[str]) -> list[tuple]:
    """``_grouped``, made once until a run changes: another question is asked of the same records."""
    state = library.state()
    make = partial(_grouped, op, recorded, impls)
    return make() if state is None else _kept.get_or_make((state, op, recorded, *impls), make)


def _grouped(op: str, recorded: bool | None, impls: Sequence[str]) -> list[tuple]:
    """(run, case, dtype, device name, implementations with a valid time, created) for each run and case; of
    layouts over several devices none: they answer another question than execution modes of a model."""
    table = library.records(op=op)
    table = table[table["status"] == "ok"]
    keys = ["run", "case", "dtype", "device_name"]
    if impls:
        having = table[table["impl"].isin(impls)].groupby(keys)["impl"].transform("nunique")
        whole = having[having == len(set(impls))].index
        table = table.merge(table.loc[whole, keys].drop_duplicates(), on=keys)
    groups = table.groupby(keys, sort=False)
    rows = groups.agg(count=("impl", "nunique"), created=("created", "first")).reset_index()
    kept = None if recorded is None else {r.id for r in library.runs(recorded=recorded, limit=1 << 30)[0]}
    layouts = {r.id for r in library.runs(kind="parallel", op=op, limit=1 << 30)[0]}
    return [
        (r.run, json.loads(r.case), r.dtype, r.device_name, r.count, r.created)
        for r in rows.itertuples(index=False)
        if r.run not in layouts and (kept is None or r.run in kept)
    ]


def _preferred(rows: list[tuple]) -> tuple:
    largest = max(count for *_, count, _ in rows)
    return max((r for r in rows if r[4] >= _ENOUGH * largest), key=lambda r: (r[5] or 0, r[0]))


def _distance(question: Question, row: tuple, meaning: Meaning) -> tuple[float, float]:
    """(how different a measured case is, and of the same the one nearer in size: half the batch at twice the
    length before twice both)."""
    _, case, dtype, device, *_ = row
    pairs = [(key, *pair) for key, pair in _pairs(question, case, meaning).items()]
    distance = sum(_WEIGHT.get(key, 1.0) * _apart(asked, had) for key, asked, had in pairs)
    if sum(_apart(asked, had) for _, asked, had in pairs if _sizes(asked, had)) > _HELPFUL:
        distance += _FAR["sizes"]
    size = abs(sum(math.log2(asked / had) for _, asked, had in pairs if _sizes(asked, had)))
    if any(key == "phase" and asked != had for key, asked, had in pairs):
        distance += _FAR["phase"]
    if question.dtype not in (None, dtype):
        distance += _FAR["dtype"]
    if question.device_name not in (None, device):
        distance += _FAR["device"]
    return distance, round(size, 6)


def _apart(asked: Any, measured: Any) -> float:
    """How different two values are: doublings between sizes, and more for another mask or word."""
    if asked == measured:
        return 0.0
    if _sizes(asked, measured):
        return abs(math.log2(asked / measured))
    return _OTHER_DETAIL if _same_word(asked, measured) else _OTHER_WORD


def _same_word(asked: Any, measured: Any) -> bool:
    return str(asked).partition(":")[0] == str(measured).partition(":")[0]


def _sizes(asked: Any, measured: Any) -> bool:
    return isinstance(asked, int) and isinstance(measured, int) and asked > 0 and measured > 0


def _asked(question: Question, measured: Mapping) -> dict[str, Any]:
    """The parameters to compare: the requested ones, and those of the measured case that follow them."""
    asked = {key: usual for key, usual in ABSENT.items() if key in measured} | dict(question.case)
    for key, source in FOLLOWS.items():
        if key in measured and key not in asked and source in asked:
            asked[key] = asked[source]
    return asked


def _pairs(question: Question, measured: Mapping, meaning: Meaning) -> dict[str, tuple[Any, Any]]:
    """{parameter: (asked, measured)}: equal where the two mean the same, and written out where they differ in
    detail."""
    asked = _asked(question, measured)
    whole, had = meaning(asked), meaning(measured)
    pairs = {key: (wanted, value(measured, key)) for key, wanted in asked.items()}
    for key, (wanted, given) in pairs.items():
        if wanted != given and key in had and _same_word(wanted, given):
            pairs[key] = (whole[key], had[key])
    return pairs


def _found(question: Question, row: tuple, meaning: Meaning) -> Found:
    run, case, dtype, device, count, _ = row
    pairs = {k: pair for k, pair in _pairs(question, case, meaning).items() if pair[0] != pair[1]}
    for key, source in FOLLOWS.items():
        if key in pairs and source in pairs and key not in question.case and case[key] == case[source]:
            del pairs[key]
    if question.dtype not in (None, dtype):
        pairs["dtype"] = (question.dtype, dtype)
    if question.device_name not in (None, device):
        pairs["device"] = (question.device_name, device)
    return Found(run, case, dtype, device, int(count), pairs, _distance(question, row, meaning))
