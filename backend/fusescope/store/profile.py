"""The tables that a profile (an import, a trace) left in a run's artifacts, for pages and the command
line."""

from __future__ import annotations

import io
import os
from pathlib import Path

from fusescope.core.errors import RunError
from fusescope.core.foreign.text import cell
from fusescope.store import files
from fusescope.store.bounded import parquet, plain, shape
from fusescope.store.index import database

SCHEMA = 1
MOST_ROWS = 1000
"""Largest page of a table."""
_FEW = 8
_GAPS = 5  # gaps that a summary names


def summary(run: Path) -> dict | None:
    """artifacts/summary.json of a run folder; None where it has no profile. RunError: torn, or from a newer
    version."""
    file = Path(run) / "artifacts" / "summary.json"
    if not os.path.lexists(file):
        return None
    data = files.read_json(file)
    if not isinstance(data.get("schema"), int) or data["schema"] > SCHEMA:
        raise RunError(f"{file} was written by a newer version; update FuseScope to open it")
    if why := shape.problem(data, shape.SUMMARY) or _other(data):
        raise RunError(f"{file} is damaged: {why}")
    if data.get("devices") and "longest_gaps" not in data and (file.parent / "gaps.parquet").is_file():
        data["longest_gaps"] = _longest_gaps(Path(run))
    return data


def _other(data: dict) -> str | None:
    """What types alone do not say."""
    if data.get("span_ns") and len(data["span_ns"]) != 2:
        return "its span_ns must be two numbers"
    if data.get("ranks") and not {"on_device", "clocks", "critical_path", "notes"} <= data.keys():
        return "it lacks what a profile of many ranks has"
    return None


def facts(run: Path, name: str) -> dict | None:
    """artifacts/NAME.json, one of ``shape.FACTS``: kernels, telemetry, memory; None where it is not there.
    RunError: torn, or of other types."""
    file = Path(run) / "artifacts" / f"{name}.json"
    if not os.path.lexists(file):
        return None
    data = files.read_json(file)
    why = shape.problem(data, shape.FACTS[name])
    if name == "memory":
        sizes = {key: size for key, size in data.items() if key.endswith("_peak_bytes")}
        why = why or shape.problem(sizes, {"*": (int,)})
    if why:
        raise RunError(f"{file} is damaged: {why}")
    return data


def _longest_gaps(run: Path) -> list[dict]:
    """The same as in the summary of a newer import."""
    found = arrow(run, "gaps", ["ts_ns", "dur_ns", "device", "cause", "before", "after"])
    return found.sort_by([("dur_ns", "descending")]).slice(0, _GAPS).to_pylist()


def names(run: Path) -> list[str]:
    """The tables there are: kernels, kernel_summary, steps …"""
    there = (Path(run) / "artifacts").glob("[!.]*.parquet")
    return sorted(p.stem for p in there if plain.is_text(p.name) and not p.is_dir())


def rank_folder(run: Path, rank: int) -> Path:
    """Where a profile of many ranks has the tables of one: laid out as a run's folder, for every function
    here. RunError: it has no such rank."""
    found = Path(run) / "artifacts" / "ranks" / str(int(rank))
    if not (found / "artifacts").is_dir():
        raise RunError(f"{Path(run).name} has no rank {rank}")
    return found


def table(run: Path, name: str, columns: list[str] | None = None):
    """One table as a pandas DataFrame; texts are categories. RunError where it is not there or damaged."""
    return arrow(run, name, columns).to_pandas()


def rows(run: Path, name: str, limit: int | None = None) -> list[dict]:
    """The first rows of a table as dicts, without pandas. RunError as ``table``."""
    found = arrow(run, name)
    return (found if limit is None else found.slice(0, limit)).to_pylist()


def arrow(run: Path, name: str, columns: list[str] | None = None):
    """One table as a pyarrow.Table. RunError as ``table``."""
    import pyarrow.parquet as pq

    found = file(run, name)
    with parquet.clear(found):
        return pq.read_table(found, columns=columns)


def columns(run: Path, name: str) -> dict[str, str]:
    """Column → "number" or "text" of a table, from its header alone. RunError as ``table``."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    found = file(run, name)
    with parquet.clear(found):
        schema = pq.read_schema(found)
    return {
        f.name: "number" if pa.types.is_integer(f.type) or pa.types.is_floating(f.type) else "text"
        for f in schema
    }


def page(
    run: Path,
    name: str,
    order: str | None = None,
    descending: bool = True,
    text: str = "",
    limit: int = 50,
    offset: int = 0,
):
    """(some rows of a table as a pandas DataFrame, how many rows match in all), found by DuckDB on disk.

    order: a column, None for the order of the file; text: what one of the row's texts holds, upper or lower
    case. Rows without a value come last. ValueError for another column or a page of no or of more than
    MOST_ROWS rows; RunError as ``table``.
    """
    known = columns(run, name)
    if order is not None and order not in known:
        raise ValueError(f"{name} is ordered by {', '.join(known)}, not by {order!r}")
    if not 1 <= limit <= MOST_ROWS or offset < 0:
        raise ValueError(
            f"a page has 1 to {MOST_ROWS} rows and begins at row 0 or later, not {limit} from {offset}"
        )
    texts = [c for c, kind in known.items() if kind == "text"]
    where, values = "", {"file": str(file(run, name))}
    ordered = f" ORDER BY {_quoted(order)} {'DESC' if descending else 'ASC'} NULLS LAST" if order else ""
    with database.connect(values["file"]) as connection:
        if text.strip():
            where = " WHERE " + _holding(connection, texts, text.strip().lower(), values)
        source = f"FROM read_parquet($file){where}"
        total = connection.execute(f"SELECT count(*) {source}", values).fetchone()[0]
        found = connection.execute(
            f"SELECT * {source}{ordered} LIMIT {int(limit)} OFFSET {int(offset)}", values
        ).df()
    return found, total


def _holding(connection, columns: list[str], text: str, values: dict) -> str:
    """The condition that one of the texts holds ``text``; what it needs is put into ``values``.

    A million rows have few different texts: those are looked through, each once, and the rows then have one
    of them.
    """
    parts = []
    for number, column in enumerate(columns):
        each = f"SELECT DISTINCT {_quoted(column)} AS one FROM read_parquet($file)"
        query = f"SELECT one FROM ({each}) WHERE contains(lower(one), $text)"
        found = connection.execute(query, {"file": values["file"], "text": text}).fetchall()
        if found:
            values[f"texts{number}"] = [row[0] for row in found]
            few = len(found) <= _FEW  # a join costs more than looking through a short list
            parts.append(
                f"list_contains($texts{number}, {_quoted(column)})"
                if few
                else f"{_quoted(column)} IN (SELECT unnest($texts{number}))"
            )
    return " OR ".join(parts) or "false"


def csv(run: Path, name: str, rows: int = 1 << 14):
    """A table as CSV in pieces of bytes, header first; never the whole of it in memory. RunError as
    ``table``."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet as pq

    found = file(run, name)
    with parquet.clear(found), pq.ParquetFile(found) as source:
        heads = [cell(c) for c in source.schema_arrow.names]
        first = True
        for batch in source.iter_batches(batch_size=rows):
            out = io.BytesIO()
            options = pyarrow.csv.WriteOptions(include_header=first)
            pyarrow.csv.write_csv(pa.record_batch([*map(_cells, batch.columns)], names=heads), out, options)
            first = False
            yield out.getvalue()
        if first:
            yield (",".join('"' + c.replace('"', '""') + '"' for c in heads) + "\n").encode()


def _cells(column):
    """A column as a spreadsheet may have it: no text that it would take for a formula."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        texts = _cells(column.dictionary)
        return pa.DictionaryArray.from_arrays(column.indices, texts).dictionary_decode()
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return pa.array([t if t is None else cell(t) for t in column.to_pylist()], column.type)
    return column


def file(run: Path, name: str) -> Path:
    """The Parquet file of a table, looked at (``bounded.parquet``). RunError where it is not there, damaged,
    or made to exhaust memory."""
    if name not in names(run):
        raise RunError(f"{Path(run).name} has no table {name}; it has {', '.join(names(run)) or 'none'}")
    return parquet.checked(Path(run) / "artifacts" / f"{name}.parquet")


def _quoted(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'


def copies_by_name(run: Path) -> list[dict]:
    """Copies and fills by name: name, calls, total_ns, bytes (None where unknown); [] without a table."""
    if "copies" not in names(run):
        return []
    found = arrow(run, "copies", ["name", "dur_ns", "bytes"])
    found = found.set_column(0, "name", found["name"].cast("string"))
    sums = found.group_by("name").aggregate([("dur_ns", "count"), ("dur_ns", "sum"), ("bytes", "sum")])
    renamed = {"dur_ns_count": "calls", "dur_ns_sum": "total_ns", "bytes_sum": "bytes"}
    return [{renamed.get(k, k): v for k, v in row.items()} for row in sums.to_pylist() if row["name"]]


def kernel_sequence(run: Path, most: int = 20_000) -> list[tuple]:
    """(stream, name, ns) of the first ``most`` kernels, by device, stream and start; [] without a table."""
    if "kernels" not in names(run):
        return []
    found = arrow(run, "kernels", ["device", "stream", "ts_ns", "name", "dur_ns"]).slice(0, most)
    keys = [(name, "ascending") for name in ("device", "stream", "ts_ns")]
    rows = found.sort_by(keys).select(["stream", "name", "dur_ns"]).to_pydict()
    return list(zip(rows["stream"], (n or "" for n in rows["name"]), rows["dur_ns"], strict=True))
