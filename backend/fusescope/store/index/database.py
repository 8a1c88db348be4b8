"""DuckDB: the connection, and the records of results files as rows."""

from __future__ import annotations

import contextlib
import os
import threading

from fusescope.core.errors import RunError
from fusescope.core.records import MODES
from fusescope.core.verdict import LEFT_OPEN, SAME_WITHIN

_TIME = "STRUCT(median DOUBLE, low DOUBLE, high DOUBLE, n BIGINT, converged BOOLEAN)"
LINE = {  # a line of results.jsonl: the schema is given, so that no odd line can change it
    **dict.fromkeys(("op", "impl"), "VARCHAR"),
    "case": "JSON",
    **dict.fromkeys(("dtype", "device", "status", "reason"), "VARCHAR"),
    "accuracy": "STRUCT(max_abs DOUBLE, max_rel DOUBLE, cosine DOUBLE)",
    "time_ms": f"STRUCT(first DOUBLE, eager {_TIME}, eager_cold {_TIME}, graph {_TIME}, graph_cold {_TIME})",
    "speedup": 'STRUCT("of" VARCHAR, median DOUBLE, low DOUBLE, high DOUBLE, same_within DOUBLE, '
    "converged BOOLEAN)",
    "tflops": "STRUCT(effective DOUBLE, executed DOUBLE)",
    "gbps": "DOUBLE",
    "throttled": "BOOLEAN",
    "conditions": "STRUCT(busy VARCHAR)",
    "resources": "STRUCT(registers BIGINT, shared BIGINT, spills BIGINT, occupancy DOUBLE)",
    **dict.fromkeys(("backend", "source_hash"), "VARCHAR"),
}
_OF_A_TIME = ("median", "low", "high", "n", "converged")
_BAND = f"coalesce(speedup.same_within, {SAME_WITHIN})"
_MEDIAN, _ENDS = "speedup.median", ("speedup.low", "speedup.high")
_KNOWN = f"""coalesce(speedup.converged, NOT coalesce(0 < {_ENDS[0]} AND {_ENDS[0]} <= {_MEDIAN}
    AND {_MEDIAN} <= {_ENDS[1]} AND isfinite({_ENDS[1]}) AND ({_ENDS[0]} > 1 + {_BAND}
    OR {_ENDS[1]} < 1 - {_BAND}) AND ln({_ENDS[1]} / {_ENDS[0]}) > abs(ln({_MEDIAN})), false))"""
LOW = f"CASE WHEN {_KNOWN} THEN {_ENDS[0]} ELSE least({_ENDS[0]}, {_MEDIAN} / {LEFT_OPEN}) END"
HIGH = f"CASE WHEN {_KNOWN} THEN {_ENDS[1]} ELSE greatest({_ENDS[1]}, {_MEDIAN} * {LEFT_OPEN}) END"
"""core.verdict.shown in SQL."""
VERDICT = f"""CASE
    WHEN speedup IS NULL OR {_MEDIAN} IS NULL THEN NULL
    WHEN NOT coalesce(0 < ({LOW}) AND ({LOW}) <= {_MEDIAN} AND {_MEDIAN} <= ({HIGH})
        AND isfinite({HIGH}), false) THEN 'inconclusive'
    WHEN ({LOW}) >= 1 - {_BAND} AND ({HIGH}) <= 1 + {_BAND} THEN 'same'
    WHEN ({LOW}) > 1 + {_BAND} THEN 'faster'
    WHEN ({HIGH}) < 1 - {_BAND} THEN 'slower'
    ELSE 'inconclusive' END"""
"""core.verdict.of_interval in SQL: what a line says of its verdict is not read."""
_FLAT = ", ".join(
    (
        'op, impl, "case"::VARCHAR AS "case", dtype, device, status, reason',
        "accuracy.max_abs, accuracy.max_rel, accuracy.cosine, time_ms.first AS first_ms",
        *(
            f"time_ms.{mode}.{field} AS {mode}{'' if field == 'median' else f'_{field}'}"
            f"{'_ms' if field in ('median', 'low', 'high') else ''}"
            for mode in MODES
            for field in _OF_A_TIME
        ),
        'speedup."of" AS speedup_of, speedup.median AS speedup',
        f"{LOW} AS speedup_low, {HIGH} AS speedup_high",
        f"{VERDICT} AS verdict",
        "tflops.effective AS tflops_effective, tflops.executed AS tflops_executed, gbps, throttled",
        "conditions.busy",
        "resources.registers, resources.shared, resources.spills, resources.occupancy, backend, source_hash",
    )
)
"""A record's line as flat columns."""

_database: dict = {}
_opening = threading.Lock()


@contextlib.contextmanager
def connect(file: str = ""):
    """A DuckDB connection of its own, of one database in memory: opening that takes 20 ms. RunError naming
    what to install where there is none, and for what DuckDB or Arrow raise meanwhile; it names the ``file``
    that is read."""
    try:
        import duckdb
        import pyarrow
    except ImportError as e:
        raise RunError(f"queries over all runs need {e.name}: pip install duckdb pyarrow") from None
    with _opening:
        if _database.get("pid") != os.getpid():  # a forked child shares no native state with its parent
            _database.update(pid=os.getpid(), root=duckdb.connect())
            _database["root"].execute("SET enable_progress_bar = false")
        connection = _database["root"].cursor()
    try:
        yield connection
    except (UnicodeEncodeError, duckdb.Error, pyarrow.ArrowException) as e:
        if isinstance(e, UnicodeEncodeError) or "cannot encode str as UTF-8" in str(e):
            raise RunError("a folder above the runs has a name that is no UTF-8: rename it") from None
        if file:
            raise RunError(f"{file} cannot be read: it is cut short or damaged") from e
        first = " ".join((str(e) or type(e).__name__).splitlines()[:1])
        raise RunError(f"the query could not be answered ({first})") from e
    finally:
        connection.close()


def line_query(sources: list[str]) -> str:
    """SQL that gives a row per record of results files, with the parameter $sources (none where the list is
    empty)."""
    if not sources:
        blank = ", ".join(f'NULL::{kind} AS "{name}"' for name, kind in LINE.items())
        return f"SELECT NULL::VARCHAR AS run, {_FLAT} FROM (SELECT {blank}) LIMIT 0"
    columns = ", ".join(f"\"{name}\": '{kind}'" for name, kind in LINE.items())
    options = f"format='newline_delimited', columns={{{columns}}}, ignore_errors=true, filename='file'"
    return (
        f"SELECT split_part(file, '/', -2) AS run, {_FLAT} FROM read_json($sources, {options}) "
        "WHERE op IS NOT NULL AND impl IS NOT NULL"
    )
