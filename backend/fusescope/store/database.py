"""DuckDB: the connection, and the records of results files as rows."""

from __future__ import annotations

import os
import threading

from fusescope.core.errors import RunError
from fusescope.core.records import MODES

_TIME = "STRUCT(median DOUBLE, low DOUBLE, high DOUBLE, n BIGINT, converged BOOLEAN)"
_LINE = {  # a line of results.jsonl: the schema is given, so that no odd line can change it
    **dict.fromkeys(("op", "impl"), "VARCHAR"),
    "case": "JSON",
    **dict.fromkeys(("dtype", "device", "status", "reason"), "VARCHAR"),
    "accuracy": "STRUCT(max_abs DOUBLE, max_rel DOUBLE, cosine DOUBLE)",
    "time_ms": f"STRUCT(first DOUBLE, eager {_TIME}, eager_cold {_TIME}, graph {_TIME}, graph_cold {_TIME})",
    "speedup": 'STRUCT("of" VARCHAR, median DOUBLE, low DOUBLE, high DOUBLE, verdict VARCHAR)',
    "tflops": "STRUCT(effective DOUBLE, executed DOUBLE)",
    "gbps": "DOUBLE",
    "throttled": "BOOLEAN",
    "resources": "STRUCT(registers BIGINT, shared BIGINT, spills BIGINT, occupancy DOUBLE)",
    **dict.fromkeys(("backend", "source_hash"), "VARCHAR"),
}
_OF_A_TIME = ("median", "low", "high", "n", "converged")
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
        "speedup.low AS speedup_low, speedup.high AS speedup_high, speedup.verdict",
        "tflops.effective AS tflops_effective, tflops.executed AS tflops_executed, gbps, throttled",
        "resources.registers, resources.shared, resources.spills, resources.occupancy, backend, source_hash",
    )
)
"""A record's line as flat columns."""

_database: dict = {}
_opening = threading.Lock()


def connect():
    """A DuckDB connection of its own, of one database in memory: opening that takes 20 ms. RunError naming
    what to install where there is none."""
    try:
        import duckdb
        import pyarrow  # noqa: F401
    except ImportError as e:
        raise RunError(f"queries over all runs need {e.name}: pip install duckdb pyarrow") from None
    with _opening:
        if _database.get("pid") != os.getpid():  # a forked child shares no native state with its parent
            _database.update(pid=os.getpid(), root=duckdb.connect())
            _database["root"].execute("SET enable_progress_bar = false")
        return _database["root"].cursor()


def line_query(sources: list[str]) -> str:
    """SQL that gives a row per record of results files, with the parameter $sources (none where the list is
    empty)."""
    if not sources:
        blank = ", ".join(f'NULL::{kind} AS "{name}"' for name, kind in _LINE.items())
        return f"SELECT NULL::VARCHAR AS run, {_FLAT} FROM (SELECT {blank}) LIMIT 0"
    columns = ", ".join(f"\"{name}\": '{kind}'" for name, kind in _LINE.items())
    options = f"format='newline_delimited', columns={{{columns}}}, ignore_errors=true, filename='file'"
    return (
        f"SELECT split_part(file, '/', -2) AS run, {_FLAT} FROM read_json($sources, {options}) "
        "WHERE op IS NOT NULL AND impl IS NOT NULL"
    )
