"""The disposable Parquet index over all runs, in profiles/.index/: deleting it costs only time.

Two tables, brought up to date separately, since a listing needs no records:
runs.parquet        one row per run
records-N.parquet   the records of a batch of runs; records.parquet says which batch counts for which run

A folder's mtime says whether it changed: run.json and notes.json are replaced by rename, and results grow
only in live runs.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

from fusescope.core import paths
from fusescope.core.errors import RunError
from fusescope.store import database, files, folder

VERSION = 1  # another schema, another folder
_SETTLED_NS = 100_000_000  # a folder changed less than this ago may change again within its clock's tick
_BATCHES = 24  # so many, and they are merged into one

_ORDER = "ORDER BY op, impl, run"  # so that a filter by operator reads few of the file's row groups


def place() -> Path:
    """The index's folder; in the user's runtime folder where profiles/ may only be read."""
    home = paths.profiles()
    if not os.access(home if home.is_dir() else home.parent, os.W_OK):
        home = paths.user_runtime() / f"index-{hashlib.sha256(str(home.resolve()).encode()).hexdigest()[:12]}"
    where = home / ".index" / f"v{VERSION}"
    where.mkdir(parents=True, exist_ok=True)
    return where


@contextlib.contextmanager
def locked(where: Path) -> Iterator[None]:
    """One process at a time brings an index up to date."""
    fd = os.open(where / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def run_folders() -> dict[str, tuple[Path, int]]:
    """Every run folder there is: id → (path, a number that changes when the folder does). Of two with one id
    the one outside recorded/ counts."""
    found, now = {}, time.time_ns()
    for home in (paths.profiles() / "recorded", paths.profiles()):
        with contextlib.suppress(FileNotFoundError), os.scandir(home) as entries:
            for entry in entries:
                if folder.ID.fullmatch(entry.name) and entry.is_dir():
                    mtime = entry.stat().st_mtime_ns
                    found[entry.name] = (Path(entry.path), mtime if now - mtime > _SETTLED_NS else -now)
    return found


def refresh_runs(where: Path, there: dict[str, tuple[Path, int]]) -> Path:
    """runs.parquet brought up to date. A folder that cannot be read is a row with the reason in
    ``broken``."""
    import pyarrow as pa

    schema = pa.schema(
        [
            ("id", pa.string()),
            ("mtime", pa.int64()),
            ("created", pa.float64()),
            ("kind", pa.string()),
            ("status", pa.string()),
        ]
        + [
            ("op", pa.string()),
            ("recorded", pa.bool_()),
            ("tags", pa.list_(pa.string())),
            ("words", pa.string()),
        ]
        + [("device_name", pa.string()), ("run", pa.string()), ("broken", pa.string())]
    )
    file = where / "runs.parquet"
    with locked(where):
        known = _read(file, schema, ["id", "mtime", "status"])
        old = dict(zip(known["id"].to_pylist(), range(known.num_rows)))
        mtimes, states = known["mtime"].to_pylist(), known["status"].to_pylist()
        keep, fresh = [], []
        for run_id, (path, mtime) in there.items():
            row = old.get(run_id)
            if row is not None and mtimes[row] == mtime and states[row] not in ("queued", "running"):
                keep.append(row)
            else:
                fresh.append(_row(path, mtime))
        if fresh or len(keep) != known.num_rows or not file.is_file():
            table = _read(file, schema)
            table = pa.concat_tables(
                [table.take(pa.array(keep, pa.int64())), pa.Table.from_pylist(fresh, schema)]
            )
            _replace(table, file)
    return file


def _row(path: Path, mtime: int) -> dict:
    recorded = folder.is_recorded(path)
    try:
        run = folder.read(path)
    except RunError as e:
        return {"id": path.name, "mtime": mtime, "recorded": recorded, "broken": str(e), "words": path.name}
    spec, text = (
        run.spec,
        [run.id, run.title, run.notes, *run.tags, run.status, run.reason or "", run.device_name],
    )
    text += [str(spec.get(k, "")) for k in ("op", "impl", "impls", "dtype", "device")]
    return {
        "id": path.name,
        "mtime": mtime,
        "created": run.created,
        "kind": run.kind,
        "status": run.status,
        "op": spec.get("op") if isinstance(spec.get("op"), str) else None,
        "recorded": recorded,
        "tags": list(run.tags),
        "words": " ".join(text).lower(),
        "device_name": run.device_name,
        "run": json.dumps(
            vars(run) | {"id": path.name, "progress": vars(run.progress)}
        ),  # to_json copies deeply: slow
    }


def refresh_records(where: Path, there: dict[str, tuple[Path, int]], connection) -> Path:
    """records.parquet (run, stamp, batch) and its batches brought up to date; unreadable lines and files are
    left out."""
    import pyarrow as pa

    schema = pa.schema([("run", pa.string()), ("stamp", pa.string()), ("batch", pa.int64())])
    file = where / "records.parquet"
    with locked(where):
        table = _read(file, schema)
        old = {r["run"]: r for r in table.to_pylist()}
        live = set(os.listdir(paths.profiles() / ".live")) if (paths.profiles() / ".live").is_dir() else set()
        keep, fresh = [], {}
        for run_id, (path, mtime) in there.items():
            stamp = f"{mtime} {_size(path)}" if run_id in live else str(mtime)
            if run_id in old and old[run_id]["stamp"] == stamp:
                keep.append(old[run_id])
            elif results := results_file(path):
                fresh[str(results)] = {"run": run_id, "stamp": stamp}
        batch = max((r["batch"] for r in old.values()), default=-1) + 1
        if fresh:
            _write_batch(connection, list(fresh), where / f"records-{batch}.parquet")
            keep += [r | {"batch": batch} for r in fresh.values()]
        if fresh or len(keep) != len(old):
            if len({r["batch"] for r in keep}) > _BATCHES:
                batch += 1
                _merge(
                    connection, where, pa.Table.from_pylist(keep, schema), where / f"records-{batch}.parquet"
                )
                keep = [r | {"batch": batch} for r in keep]
            _replace(pa.Table.from_pylist(keep, schema), file)
            _drop_unused(where, {r["batch"] for r in keep})
    return file


def results_file(path: Path) -> Path | None:
    """A run's results file, packed or not; None where it has none."""
    return next(
        (path / name for name in ("results.jsonl", "results.jsonl.gz") if (path / name).exists()), None
    )


def _size(path: Path) -> int:
    results = results_file(path)
    return results.stat().st_size if results else 0


def _write_batch(connection, sources: list[str], target: Path) -> None:
    import duckdb

    try:
        _copy_lines(connection, sources, target)
    except (
        duckdb.Error
    ):  # one file that is no text at all (a torn .gz) fails them all: find it, do without it
        _copy_lines(connection, [s for s in sources if _is_readable(Path(s))], target)


def _copy_lines(connection, sources: list[str], target: Path) -> None:
    part = target.with_suffix(".part")
    query = f"SELECT * FROM ({database.line_query(sources)}) {_ORDER}"
    connection.sql(query, params={"sources": sources} if sources else None).write_parquet(str(part))
    os.replace(part, target)


def _is_readable(path: Path) -> bool:
    try:
        for _ in files.lines(path.with_name("results.jsonl")):
            pass
    except RunError:
        return False
    return True


def _merge(connection, where: Path, state, target: Path) -> None:
    connection.register("state", state)
    batches = [str(where / f"records-{n}.parquet") for n in sorted(set(state["batch"].to_pylist()))]
    part = target.with_suffix(".part")
    connection.sql(
        "SELECT r.* EXCLUDE (filename) FROM read_parquet($batches, filename=true) r "
        "JOIN state s ON r.run = s.run "
        f"AND parse_filename(r.filename) = 'records-' || s.batch || '.parquet' {_ORDER}",
        params={"batches": batches},
    ).write_parquet(str(part))
    connection.unregister("state")
    os.replace(part, target)


def _drop_unused(where: Path, used: set[int]) -> None:
    for path in where.glob("records-*.parquet"):
        if (
            path.stem.removeprefix("records-").isdigit()
            and int(path.stem.removeprefix("records-")) not in used
        ):
            path.unlink(missing_ok=True)


def _read(file: Path, schema, columns: list[str] | None = None):
    """The table in a file, or columns of it; an empty one where it is missing, torn or of another schema."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with contextlib.suppress(OSError, pa.ArrowException), pq.ParquetFile(file) as parquet:
        if parquet.schema_arrow.equals(schema):
            return parquet.read(columns)
    return schema.empty_table()


def _replace(table, file: Path) -> None:
    import pyarrow.parquet as pq

    part = file.with_suffix(".part")
    with files.clear_errors(file):
        pq.write_table(table, part)
        os.replace(part, file)
