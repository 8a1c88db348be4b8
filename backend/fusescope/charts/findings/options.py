"""What options cost, as a sentence of our fastest implementation and as a table of all."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from fusescope.analysis.compare.options import Cost
from fusescope.charts import captions, numbers
from fusescope.charts.colours import kind, short

_NAMED = 3  # cases whose ratios are given one by one; of more the mean and the range


def sentence(costs: Sequence[Cost]) -> str:
    """ "With v4_scheduled, score “20 * tanh(score / 20)” takes 1.64× the time of score=none: ratios of
    medians." for the implementation of ours, else of any, with the lowest times without; "" without any."""
    if not costs:
        return ""
    ours = [c for c in costs if kind(c.impl) == "ours"] or list(costs)
    own = [c for c in ours if c.impl == _fastest(ours)]
    clauses = []
    for key in dict.fromkeys(c.key for c in own):
        of_key = [c for c in own if c.key == key]
        places, base = _places(of_key), f" the time of {_option(key, of_key[0].without)}"
        for n, value in enumerate(dict.fromkeys(c.value for c in of_key)):
            ratios = _ratios([c for c in of_key if c.value == value], places, "" if n else base)
            clauses.append(f"{_option(key, value)} {'' if n else 'takes '}{ratios}")
    return f"With {short(own[0].impl)}, {', '.join(clauses)}: ratios of medians."


def _option(key: str, value: object) -> str:
    """ "kv_dtype=fp8"; of an expression "score “20 * tanh(score / 20)”"."""
    return f"{key} “{value}”" if " " in str(value) else f"{key}={value}"


def table(costs: Sequence[Cost]) -> pd.DataFrame:
    """A row for each option and implementation: both medians in µs or ms, and their ratio."""
    unit, factor = numbers.time_unit(t for c in costs for t in (c.with_ms, c.without_ms))
    places = _places(costs)
    lines = [
        {
            "implementation": short(c.impl),
            "option": _option(c.key, c.value),
            "case": places[c.case],
            f"without ({unit})": c.without_ms * factor,
            f"with ({unit})": c.with_ms * factor,
            "with / without": c.ratio,
        }
        for c in costs
    ]
    data = pd.DataFrame(lines)
    return data if any(places.values()) else data.drop(columns="case")


def _fastest(costs: Sequence[Cost]) -> str:
    """The implementation with the lowest times without, over the cases that it shares with the others."""
    times: dict[str, dict[tuple, float]] = {}
    for c in costs:
        times.setdefault(c.impl, {})[c.case] = c.without_ms
    most = max(map(len, times.values()))
    full = [impl for impl, of_case in times.items() if len(of_case) == most]
    return min(full, key=lambda impl: sum(map(math.log, times[impl].values())))


def _ratios(costs: Sequence[Cost], places: dict[tuple, str], base: str) -> str:
    """ "1.17× the time of score=none", "1.17× (mask=causal) and 1.05× (mask=…)", "1.2× (1.05× to 1.4× over 8
    cases)"; ``base`` stands behind the first ratio."""
    if len(costs) > _NAMED:
        mean = math.exp(sum(math.log(c.ratio) for c in costs) / len(costs))
        low, high = (numbers.ratio(f(c.ratio for c in costs)) for f in (min, max))
        return f"{numbers.ratio(mean)}{base} in the geometric mean of {len(costs)} cases ({low} to {high})"
    texts = [
        numbers.ratio(c.ratio) + (base if n == 0 else "") + _in(places[c.case]) for n, c in enumerate(costs)
    ]
    return " and ".join(texts)


def _in(place: str) -> str:
    return f" ({place})" if place else ""


def _places(costs: Sequence[Cost]) -> dict[tuple, str]:
    """What tells the cases apart, in as few parameters as it takes: "mask=causal"; "" where there is one."""
    cases = [dict(case) for case in dict.fromkeys(c.case for c in costs)]
    varying = [k for k in cases[0] if len({str(case.get(k)) for case in cases}) > 1]
    words = [k for k in varying if isinstance(cases[0][k], str)]
    for keys in ([k] for k in (*words, *varying)):
        if len({tuple(str(case.get(k)) for k in keys) for case in cases}) == len(cases):
            varying = keys
            break
    return {
        case: captions.case_of({k: v for k, v in case if k in varying})
        for case in dict.fromkeys(c.case for c in costs)
    }
