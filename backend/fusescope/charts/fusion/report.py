"""The report of a traverse or a search: all schemes in one chart, the fastest of them by name, and what did
not run by reason."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence

import pandas as pd
import plotly.graph_objects as go

from fusescope.charts import numbers
from fusescope.charts.fusion import progress, ranks
from fusescope.core.records import Record

KINDS = ("traverse", "search")
LISTED = 200  # of the fastest schemes by name; the charts show all
_REASONS = 20


def sections(
    kind: str, records: Sequence[Record], subtitle: str = ""
) -> Iterable[tuple[str, str | go.Figure | pd.DataFrame]]:
    """(title, sentence, chart or table) in their order; ``kind``: of the run."""
    layers = [r for r in records if r.op == "layer"]
    schemes = [r for r in layers if _is_code(r.impl)]
    beside = {
        r.impl: r.ms
        for r in records
        if r.op in ("layer", "layer_final") and r.status == "ok" and not _is_code(r.impl)
    }
    right = sorted((r for r in schemes if r.status == "ok"), key=lambda r: r.ms)
    failed = len(schemes) - len(right)
    if not right:
        yield "Schemes", f"None of {len(schemes):,} schemes has a time."
    else:
        said = f"{len(right):,} distinct schemes were right and timed" + (
            f", {failed:,} failed" if failed else ""
        )
        yield "Schemes", f"{said}; the charts show all of them."
        yield "Schemes by time", ranks.ranks({r.impl: r.ms for r in right}, beside, subtitle)
        name = (
            "in the order of the search" if kind == "search" else "in the order of measuring, which was drawn"
        )
        yield f"Best so far, {name}", progress.best_so_far({kind: track(schemes)}, beside, subtitle)
        if finals := [r for r in records if r.op == "layer_final"]:
            yield (
                "The best measured again beside the baselines",
                _table(sorted(finals, key=lambda r: r.ms or 1e30)),
            )
        listed = f"the {LISTED:,} fastest of {len(right):,}" if len(right) > LISTED else f"all {len(right):,}"
        yield (
            f"Schemes by name: {listed}, and the baselines",
            _table([*right[:LISTED], *(r for r in layers if not _is_code(r.impl))]),
        )
    if failed:
        reasons = Counter((r.status, r.reason or "no reason was left") for r in schemes if r.status != "ok")
        rows = [(count, status, reason) for (status, reason), count in reasons.most_common(_REASONS)]
        some = (
            f", the {_REASONS} most frequent of {len(reasons):,} reasons" if len(reasons) > _REASONS else ""
        )
        yield f"What failed{some}", pd.DataFrame(rows, columns=["schemes", "status", "reason"])
    if alone := [r for r in records if r.op == "layer_segment" and r.status == "ok"]:
        yield f"Segments on their own, {len(alone)}", _segments(alone)


def track(schemes: Iterable[Record]) -> list[tuple[int, float, float]]:
    """(number, ms or NaN, best so far) of evaluations in their order, from the first that is right."""
    times = [r.ms or math.inf for r in schemes]
    best = itertools.accumulate(times, min)
    return [
        (n, ms if ms < float("inf") else float("nan"), low)
        for n, (ms, low) in enumerate(zip(times, best), 1)
        if low < float("inf")
    ]


def _table(rows: Sequence[Record]) -> pd.DataFrame:
    unit, factor = numbers.time_unit(r.ms for r in rows)
    return pd.DataFrame(
        {
            "scheme": [r.impl for r in rows],
            f"time ({unit})": [r.ms and r.ms * factor for r in rows],
            "× unfused": [r.speedup.median if r.speedup else None for r in rows],
            "verdict": [
                r.status if r.status != "ok" else r.speedup.verdict if r.speedup else None for r in rows
            ],
            "what it is": [r.backend for r in rows],
        }
    )


def _segments(rows: Sequence[Record]) -> pd.DataFrame:
    unit, factor = numbers.time_unit(r.ms for r in rows)
    rows = sorted(rows, key=lambda r: (r.case["first"], r.case["last"], r.impl))
    return pd.DataFrame(
        {
            "operators": [
                f"{r.case['first']}–{r.case['last']}"
                if r.case["first"] != r.case["last"]
                else str(r.case["first"])
                for r in rows
            ],
            "made by": [r.impl for r in rows],
            f"time ({unit})": [r.ms * factor for r in rows],
            "GB/s": [r.gbps for r in rows],
            "names": [r.backend for r in rows],
        }
    )


def _is_code(impl: str) -> bool:
    return len(impl) == 16 and set(impl) <= {"0", "1"}
