"""The records of all runs: which Parquet files hold them, and from which run folders they are read
directly."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from fusescope.core import paths
from fusescope.store import folder
from fusescope.store.bounded import plain
from fusescope.store.index import database, disk, runs

BATCHES = 24
"""So many batches, and they are merged into one."""
_FILE = "records.parquet"
_ORDER = "ORDER BY op, impl, run"  # so that a filter by operator reads few of the file's row groups


@cache
def _schema():
    import pyarrow as pa

    return pa.schema([("run", pa.string()), ("stamp", pa.string()), ("batch", pa.string())])


@contextlib.contextmanager
def source(connection, there: dict[str, runs.Found]) -> Iterator[tuple[str, dict]]:
    """SQL that gives a row per record of these runs (unreadable lines and files left out), and its
    parameters; its files stay there until the end of the context."""
    where = disk.place()
    with contextlib.ExitStack() as leases:
        with disk.locked(where) as ours:
            state, direct = _refreshed(where, there, connection) if ours else (_schema().empty_table(), None)
            batches = [where / name for name in sorted(set(state["batch"].to_pylist()))] if ours else []
            if not disk.lease(batches, leases):
                batches, direct = [], None
        if direct is None:  # nothing can be kept, or another process has been holding the lock for long
            direct = _good(r for found in there.values() if (r := runs.results_file(found.path)))
        parts, values = [], {}
        if batches:
            connection.register("state", state)
            leases.callback(connection.unregister, "state")
            values["batches"] = [str(file) for file in batches]
            parts.append(_LIVE)
        if direct or not batches:
            parts.append(database.line_query(direct))
            values |= {"sources": direct} if direct else {}
        yield " UNION ALL BY NAME ".join(f"({part})" for part in parts), values


_LIVE = (
    "SELECT r.* EXCLUDE (filename) FROM read_parquet($batches, filename=true) r "
    "JOIN state s ON r.run = s.run AND parse_filename(r.filename) = s.batch"
)
"""The rows of batches that count."""


def forget() -> None:
    """Start again: a file of the index turned out to be damaged."""
    where = disk.place()
    if where:
        for file in where.glob("*.parquet"):
            disk.drop(file)


def _refreshed(where: Path, there: dict[str, runs.Found], connection):
    """The manifest (run, stamp, batch) brought up to date, under the lock, and the results files that could
    not be put into a batch."""
    import pyarrow as pa

    old = {r["run"]: r for r in disk.read(where / _FILE, _schema()).to_pylist()}
    whole = {name for name in {r["batch"] for r in old.values()} if plain.is_file(where / name)}
    live = set(os.listdir(paths.profiles() / ".live")) if (paths.profiles() / ".live").is_dir() else set()
    keep, fresh = [], {}
    for run_id, found in there.items():
        row = old.get(run_id)
        results = runs.results_file(found.path) if run_id in live or not row else None
        stamp = f"{found.stamp} {results.stat().st_size}" if run_id in live and results else found.stamp
        if row and row["stamp"] == stamp and row["batch"] in whole:
            keep.append(row)
        elif results := results or runs.results_file(found.path):
            fresh[str(results)] = {"run": run_id, "stamp": stamp}
    direct = []
    if fresh:
        batch = _new_batch()
        good = _good(map(Path, fresh))
        if _write_batch(connection, good, where / batch):
            keep += [row | {"batch": batch} for row in fresh.values()]
        else:
            direct = good
    if len(names := {r["batch"] for r in keep}) > BATCHES:
        batch = _new_batch()
        if _merge(connection, pa.Table.from_pylist(keep, _schema()), where, names, where / batch):
            keep = [row | {"batch": batch} for row in keep]
    state = pa.Table.from_pylist(keep, _schema())
    if (fresh or len(keep) != len(old)) and disk.replace(where / _FILE, disk.write_table(state)):
        used = {r["batch"] for r in keep}
        for file in where.glob("records-*.parquet"):
            if file.name not in used:
                disk.drop(file)
    return state, direct


def _good(results: Iterable[Path]) -> list[str]:
    """Results files that DuckDB can read to their end: one that is torn or no text fails them all."""
    return [str(file) for file in results if folder.is_unchanged(file.parent)]


def _new_batch() -> str:
    return f"records-{secrets.token_hex(8)}.parquet"


def _write_batch(connection, sources: list[str], target: Path) -> bool:
    query = f"SELECT * FROM ({database.line_query(sources)}) {_ORDER}"
    values = {"sources": sources} if sources else None
    return disk.replace(target, lambda path: connection.sql(query, params=values).write_parquet(str(path)))


def _merge(connection, state, where: Path, names: set[str], target: Path) -> bool:
    connection.register("state", state)
    values = {"batches": [str(where / name) for name in sorted(names)]}
    try:
        return disk.replace(
            target,
            lambda path: connection.sql(f"{_LIVE} {_ORDER}", params=values).write_parquet(str(path)),
        )
    finally:
        connection.unregister("state")
