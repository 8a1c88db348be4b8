"""The report of a sweep or a search: all schemes in one chart, the fastest by name, and failures by
reason."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

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
    baselines = {
        r.impl: r.ms
        for r in records
        if r.op in ("layer", "layer_final") and r.status == "ok" and not _is_code(r.impl)
    }
    correct = sorted((r for r in schemes if r.status == "ok"), key=lambda r: r.ms)
    failed = len(schemes) - len(correct)
    if not correct:
        yield "Schemes", f"None of {len(schemes):,} schemes has a time."
    else:
        failures = f", {failed:,} failed" if failed else ""
        yield (
            "Schemes",
            f"{len(correct):,} distinct schemes checked and timed{failures}; the charts show all.",
        )
        yield "Schemes by time", ranks.ranks({r.impl: r.ms for r in correct}, baselines, subtitle)
        name = "in search order" if kind == "search" else "in measuring order (random)"
        yield f"Best so far, {name}", progress.best_so_far({kind: track(schemes)}, baselines, subtitle)
        if finals := [r for r in records if r.op == "layer_final"]:
            yield (
                "The best schemes, re-measured with the baselines",
                _table(sorted(finals, key=lambda r: r.ms or 1e30), baselines),
            )
        listed = (
            f"the {LISTED:,} fastest of {len(correct):,}"
            if len(correct) > LISTED
            else f"all {len(correct):,}"
        )
        yield (
            f"Schemes by name: {listed}, and the baselines",
            _table([*correct[:LISTED], *(r for r in layers if not _is_code(r.impl))], baselines),
        )
    if failed:
        reasons = Counter((r.status, r.reason or "unknown reason") for r in schemes if r.status != "ok")
        rows = [(count, status, reason) for (status, reason), count in reasons.most_common(_REASONS)]
        some = (
            f", the {_REASONS} most frequent of {len(reasons):,} reasons" if len(reasons) > _REASONS else ""
        )
        yield f"Failures{some}", pd.DataFrame(rows, columns=["schemes", "status", "reason"])
    if alone := [r for r in records if r.op == "layer_segment" and r.status == "ok"]:
        yield f"Segments measured alone ({len(alone)})", _segments(alone)


def track(schemes: Iterable[Record]) -> list[tuple[int, float, float]]:
    """(number, ms or NaN, best so far) of evaluations in their order, from the first that is right."""
    times = [r.ms or math.inf for r in schemes]
    best = itertools.accumulate(times, min)
    return [
        (n, ms if ms < float("inf") else float("nan"), low)
        for n, (ms, low) in enumerate(zip(times, best), 1)
        if low < float("inf")
    ]


def _table(rows: Sequence[Record], baselines: Mapping[str, float]) -> pd.DataFrame:
    """Over unfused: the paired speed-up; over another baseline: the ratio of the medians."""
    unit, factor = numbers.time_unit(r.ms for r in rows)
    return pd.DataFrame(
        {
            "scheme": [r.impl for r in rows],
            f"time ({unit})": [r.ms and r.ms * factor for r in rows],
            "over unfused (×)": [r.speedup.median if r.speedup else None for r in rows],
        }
        | {
            f"over {name} (×)": [ms / r.ms if r.ms else None for r in rows]
            for name, ms in baselines.items()
            if name != "unfused"
        }
        | {
            "verdict": [
                r.status if r.status != "ok" else r.speedup.words if r.speedup else None for r in rows
            ],
            "implementation": [r.backend for r in rows],
        }
    )


def _segments(rows: Sequence[Record]) -> pd.DataFrame:
    unit, factor = numbers.time_unit(r.ms for r in rows)
    rows = sorted(rows, key=lambda r: (r.case["first"], r.case["last"], r.impl))
    return pd.DataFrame(
        {
            "operators": ["–".join(dict.fromkeys((str(r.case["first"]), str(r.case["last"])))) for r in rows],
            "made by": [r.impl for r in rows],
            f"time ({unit})": [r.ms * factor for r in rows],
            "GB/s": [r.gbps for r in rows],
            "names": [r.backend for r in rows],
        }
    )


def _is_code(impl: str) -> bool:
    return len(impl) == 16 and set(impl) <= {"0", "1"}
