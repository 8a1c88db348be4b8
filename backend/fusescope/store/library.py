"""All runs: finding one by id, listing, filtering, and the records of many as one table."""

from __future__ import annotations

import json
from pathlib import Path

from fusescope.core import paths
from fusescope.core.errors import RunError
from fusescope.core.records import Run
from fusescope.store import database, folder, index


def find(run_id: str) -> Path:
    """The folder of a run by its id, or by a beginning that only one run has; recorded runs included.
    RunError else."""
    homes = (paths.profiles(), paths.profiles() / "recorded")
    if not run_id or "/" in run_id or "\0" in run_id or run_id.startswith("."):
        raise RunError(f"{run_id!r} is not a run id; one looks like 20260131-235959-bench-1a2b3c")
    for home in homes:
        if (home / run_id / "run.json").is_file():
            return home / run_id
    found = [p for p in index.run_folders() if p.startswith(run_id)]
    if len(found) == 1:
        return find(found[0])
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
) -> tuple[list[Run], int]:
    """One page of the runs that match, newest first, and how many match in all. RunError without duckdb.

    text: words that all occur in id, title, notes, tags, device, operator, implementations, dtype, status or
    reason.
    """
    conditions, values = ["broken IS NULL"], {"limit": limit, "offset": offset}
    for name, value in (("kind", kind), ("status", status), ("op", op), ("recorded", recorded)):
        if value is not None:
            conditions.append(f"{name} = ${name}")
            values[name] = value
    if tag is not None:
        conditions.append("list_contains(tags, $tag)")
        values["tag"] = tag
    for n, word in enumerate((text or "").lower().split()):
        conditions.append(f"contains(words, $word{n})")
        values[f"word{n}"] = word
    with database.connect() as connection:
        runs = _quoted(index.refresh_runs(index.place(), index.run_folders()))
        table = f"FROM read_parquet('{runs}') WHERE {' AND '.join(conditions)}"
        counted = {k: v for k, v in values.items() if k not in ("limit", "offset")}
        total = connection.execute(f"SELECT count(*) {table}", counted).fetchone()[0]
        page = connection.execute(
            f"SELECT run {table} ORDER BY created DESC, id DESC LIMIT $limit OFFSET $offset", values
        ).fetchall()
    return [Run.from_json(json.loads(text)) for (text,) in page], total


def broken() -> list[tuple[str, str]]:
    """Run folders that cannot be read: (id, reason)."""
    with database.connect() as connection:
        table = _quoted(index.refresh_runs(index.place(), index.run_folders()))
        return connection.execute(
            f"SELECT id, broken FROM read_parquet('{table}') WHERE broken IS NOT NULL ORDER BY id"
        ).fetchall()


def records(
    op: str | None = None, impl: str | None = None, device_name: str | None = None, run: str | None = None
):
    """The records that match, as a pandas DataFrame, oldest run first. RunError without duckdb or for an
    unknown run.

    Columns: run, created (Unix seconds), device_name, op, impl, case (JSON text), dtype, device, status,
    reason, max_abs, max_rel, cosine, first_ms; for each of eager, eager_cold, graph, graph_cold: _ms,
    _low_ms, _high_ms, _n, _converged; speedup_of, speedup, speedup_low, speedup_high, verdict,
    tflops_effective, tflops_executed, gbps, throttled, registers, shared, spills, occupancy, backend,
    source_hash.
    """
    if run is not None:
        return _of_one(find(run), op, impl, device_name)
    place, there = index.place(), index.run_folders()
    with database.connect() as connection:
        about = _quoted(index.refresh_runs(place, there))
        state = _quoted(index.refresh_records(place, there, connection))
        batches = [str(p) for p in sorted(place.glob("records-*.parquet"))]
        if not batches:
            return connection.execute(
                "SELECT run, 0.0 AS created, '' AS device_name, * EXCLUDE run "
                f"FROM ({database.line_query([])})"
            ).df()
        conditions, values = _matching(op, impl, device_name)
        return connection.execute(
            f"""SELECT r.run, u.created, u.device_name, r.* EXCLUDE (run, filename)
            FROM read_parquet($batches, filename=true) r
            JOIN read_parquet('{state}') s
            ON r.run = s.run AND parse_filename(r.filename) = 'records-' || s.batch || '.parquet'
            JOIN (SELECT id, created, device_name FROM read_parquet('{about}') WHERE broken IS NULL) u
            ON r.run = u.id
            WHERE {conditions} ORDER BY r.run""",
            values | {"batches": batches},
        ).df()


def _of_one(path: Path, op: str | None, impl: str | None, device_name: str | None):
    about = folder.read(path)
    results = index.results_file(path)
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


def _quoted(path: Path) -> str:
    return str(path).replace("'", "''")
