"""All runs: finding one by id, listing, filtering, and the records of many as one table."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

from fusescope.core import paths
from fusescope.core.errors import RunError
from fusescope.core.kept.bounded_cache import BoundedCache
from fusescope.core.records import Run
from fusescope.store import folder
from fusescope.store.bounded import plain
from fusescope.store.index import database
from fusescope.store.index import records as index_records
from fusescope.store.index import runs as index_runs

ORDERS = {
    "newest": "ended DESC NULLS LAST, id DESC",
    "oldest": "ended NULLS LAST, id",
    "longest": "seconds DESC NULLS LAST, id DESC",
    "speed-up": "best DESC NULLS LAST, id DESC",
}
"""What a list of runs can be ordered by: when they ended (else started, else were created), how long they
took, and the largest speed-up that is proven in any of their cases."""
_SYNONYMS = (
    ("padded", "packed", "padding", "varlen", "unequal"),
    ("fp16", "float16", "half"),
    ("bf16", "bfloat16"),
    ("fp32", "float32"),
    ("decode", "decoding"),
    ("gpt2", "gpt-2"),
)
"""Words of which a search for one finds the others."""
_TERMS = re.compile(r'["“”]([^"“”]+)["“”]|([^\s"“”]+)')
_ANSWERS = 64  # of ``runs`` that are kept
_answers: dict = {}  # "of": (the table of all runs, its answers by what was asked)
_BEST = "SELECT run, max(speedup) FILTER (verdict = 'faster') AS best FROM ({}) GROUP BY run"


def find(run_id: str) -> Path:
    """The folder of a run by its id, or by a beginning that only one run has; recorded runs included.
    RunError else."""
    homes = (paths.profiles(), paths.profiles() / "recorded")
    named = run_id and not run_id.startswith(".") and plain.is_text(run_id)
    if not named or "/" in run_id or "\0" in run_id:
        raise RunError(f"{run_id!r} is not a run id; one looks like 20260131-235959-bench-1a2b3c")
    for home in homes:
        if os.path.isfile(home / run_id / "run.json"):  # never raises, as Path.is_file may
            return home / run_id
    there = index_runs.folders()
    if run_id in there:  # what is left of a run: it can be looked at and deleted
        return there[run_id].path
    found = [name for name in there if name.startswith(run_id)]
    if len(found) == 1:
        return there[found[0]].path
    if found:
        raise RunError(
            f"{run_id} is the beginning of {len(found)} runs "
            f"({', '.join(sorted(found)[:3])} among them): give more of it"
        )
    raise RunError(f"there is no run {run_id} in {homes[0]}")


def runs(
    kind: str | None = None,
    status: str | None = None,
    op: str | None = None,
    text: str | None = None,
    recorded: bool | None = None,
    tag: str | None = None,
    limit: int = 50,
    offset: int = 0,
    order: str = "newest",
) -> tuple[list[Run], int]:
    """One page of the runs that match, in one of ORDERS, and how many match in all. RunError without duckdb.

    text: words that all occur, themselves or a synonym, in id, title, notes, tags, device, operator, model,
    implementations, the cases' values, dtype, kind, status or reason. Words in double quotes are one; runs
    where all of the text stands as it is typed come first.
    """
    asked = (kind, status, op, text, recorded, tag, limit, offset, order)
    there = index_runs.folders()
    with database.connect() as connection:
        table = index_runs.table(there)
        before = _answers.get("of")
        if before is None or before[0] is not table:  # it is the same one for as long as no run changes
            before = _answers["of"] = table, BoundedCache(_ANSWERS)
        found, total = before[1].get_or_make(asked, lambda: _page(connection, there, table, *asked))
    return list(found), total


def _page(
    connection,
    there: Mapping[str, index_runs.Found],
    all_runs,
    kind: str | None,
    status: str | None,
    op: str | None,
    text: str | None,
    recorded: bool | None,
    tag: str | None,
    limit: int,
    offset: int,
    order: str,
) -> tuple[list[Run], int]:
    """``runs`` of the table of all runs, which are in the folders ``there``."""
    conditions, values = ["broken IS NULL"], {"limit": limit, "offset": offset}
    for name, value in (("kind", kind), ("status", status), ("op", op), ("recorded", recorded)):
        if value is not None:
            conditions.append(f"{name} = ${name}")
            values[name] = value
    if tag is not None:
        conditions.append("list_contains(tags, $tag)")
        values["tag"] = tag
    words = _terms(text or "")
    for n, word in enumerate(words):
        names = {f"word{n}_{k}": other for k, other in enumerate(_same_words(word))}
        conditions.append(f"({' OR '.join(f'contains(words, ${name})' for name in names)})")
        values |= names
    where = f"WHERE {' AND '.join(conditions)}"
    counted = {k: v for k, v in values.items() if k not in ("limit", "offset")}
    first = ""
    if len(words) > 1:
        first, values = "contains(words, $phrase) DESC, ", values | {"phrase": " ".join(words)}
    with contextlib.ExitStack() as stack:
        connection.register("runs", all_runs)
        total = connection.execute(f"SELECT count(*) FROM runs {where}", counted).fetchall()[0][0]
        table = "runs"
        if order == "speed-up":
            source, needed = stack.enter_context(index_records.source(connection, there))
            table, values = f"runs LEFT JOIN ({_BEST.format(source)}) b ON b.run = runs.id", values | needed
        page = connection.execute(
            f"SELECT runs.run FROM {table} {where} ORDER BY {first}{ORDERS[order]} "
            "LIMIT $limit OFFSET $offset",
            values,
        ).fetchall()
    return [Run.from_json(json.loads(text)) for (text,) in page], total


def _terms(text: str) -> list[str]:
    """The words of a search in lower case; what stands in double quotes is one."""
    found = _TERMS.findall(text.lower())
    return [" ".join((phrase or word).split()) for phrase, word in found if (phrase or word).strip()]


def _same_words(word: str) -> tuple[str, ...]:
    """The word and what else it is called."""
    return next((same for same in _SYNONYMS if word in same), (word,))


def state() -> int | None:
    """What is made from all runs can be kept for as long as this is the same; None, for not at all, while one
    is live. RunError without duckdb."""
    with database.connect():
        return index_runs.state()


def broken() -> list[tuple[str, str]]:
    """Run folders that cannot be read: (id, reason)."""
    with database.connect():
        table = index_runs.table().select(["id", "broken"]).to_pylist()
    return sorted((row["id"], row["broken"]) for row in table if row["broken"] is not None)


def records(
    op: str | None = None, impl: str | None = None, device_name: str | None = None, run: str | None = None
):
    """The records that match, as a pandas DataFrame, oldest run first. RunError without duckdb or for an
    unknown run.

    Columns: run, created (Unix seconds), device_name, op, impl, case (JSON text), dtype, device, status,
    reason, max_abs, max_rel, cosine, first_ms; for each of eager, eager_cold, graph, graph_cold: _ms,
    _low_ms, _high_ms, _n, _converged; speedup_of, speedup, speedup_low, speedup_high, verdict,
    tflops_effective, tflops_executed, gbps, throttled, busy, registers, shared, spills, occupancy, backend,
    source_hash.
    """
    if run is not None:
        return _of_one(find(run), op, impl, device_name)
    conditions, values = _matching(op, impl, device_name)
    try:
        return _of_all(conditions, values)
    except RunError as error:
        if error.__cause__ is None:  # not a refusal of DuckDB's or Arrow's
            raise
        index_records.forget()
        return _of_all(conditions, values)


def _of_all(conditions: str, values: dict):
    there = index_runs.folders()
    with database.connect() as connection, index_records.source(connection, there) as (source, needed):
        connection.register("runs", index_runs.table(there))
        return connection.execute(
            f"""SELECT r.run, u.created, u.device_name, r.* EXCLUDE (run) FROM ({source}) r
            JOIN (SELECT id, created, device_name FROM runs WHERE broken IS NULL) u ON r.run = u.id
            WHERE {conditions} ORDER BY r.run""",
            values | needed,
        ).df()


def _of_one(path: Path, op: str | None, impl: str | None, device_name: str | None):
    about = folder.read(path)
    for name in index_runs.RESULTS:
        plain.refuse_odd(path / name)
    results = index_runs.results_file(path)
    sources = [str(results)] if results else []
    conditions, values = _matching(op, impl, device_name)
    values |= {"created": about.created, "name": about.device_name} | (
        {"sources": sources} if sources else {}
    )
    with database.connect() as connection:
        return connection.execute(
            f"SELECT * FROM (SELECT run, $created::DOUBLE AS created, $name AS device_name, * EXCLUDE run "
            f"FROM ({database.line_query(sources)})) WHERE {conditions}",
            values,
        ).df()


def _matching(op: str | None, impl: str | None, device_name: str | None) -> tuple[str, dict]:
    values = {k: v for k, v in (("op", op), ("impl", impl), ("device_name", device_name)) if v is not None}
    return " AND ".join(f"{k} = ${k}" for k in values) or "true", values
