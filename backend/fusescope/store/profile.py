"""The tables that a profile (an import, a trace) left in a run's artifacts, for pages and the command
line."""

from __future__ import annotations

import io
from pathlib import Path

from fusescope.core.errors import RunError
from fusescope.store import database, files

SCHEMA = 1
MOST_ROWS = 1000
"""Largest page of a table."""
_FEW = 8


def summary(run: Path) -> dict | None:
    """artifacts/summary.json of a run folder; None where it has no profile. RunError: torn, or from a newer
    version."""
    file = Path(run) / "artifacts" / "summary.json"
    if not file.is_file():
        return None
    data = files.read_json(file)
    if not isinstance(data.get("schema"), int) or data["schema"] > SCHEMA:
        raise RunError(f"{file} was written by a newer version; update FuseScope to open it")
    return data


def names(run: Path) -> list[str]:
    """The tables there are: kernels, kernel_summary, steps …"""
    return sorted(p.stem for p in (Path(run) / "artifacts").glob("*.parquet"))


def table(run: Path, name: str, columns: list[str] | None = None):
    """One table as a pandas DataFrame; texts are categories. RunError where it is not there or damaged."""
    return arrow(run, name, columns).to_pandas()


def rows(run: Path, name: str, limit: int | None = None) -> list[dict]:
    """The first rows of a table as dicts, without pandas. RunError as ``table``."""
    found = arrow(run, name)
    return (found if limit is None else found.slice(0, limit)).to_pylist()


def arrow(run: Path, name: str, columns: list[str] | None = None):
    """One table as a pyarrow.Table. RunError as ``table``."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = _file(run, name)
    try:
        return pq.read_table(file, columns=columns)
    except (pa.ArrowException, OSError) as error:
        raise RunError(f"{file} cannot be read ({error})") from None


def columns(run: Path, name: str) -> dict[str, str]:
    """Column → "number" or "text" of a table, from its header alone. RunError as ``table``."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        schema = pq.read_schema(_file(run, name))
    except (pa.ArrowException, OSError) as error:
        raise RunError(f"{_file(run, name)} cannot be read ({error})") from None
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
    where, values = "", {"file": str(_file(run, name))}
    ordered = f" ORDER BY {_quoted(order)} {'DESC' if descending else 'ASC'} NULLS LAST" if order else ""
    with database.connect() as connection:
        try:
            if text.strip():
                where = " WHERE " + _holding(connection, texts, text.strip().lower(), values)
            source = f"FROM read_parquet($file){where}"
            total = connection.execute(f"SELECT count(*) {source}", values).fetchone()[0]
            found = connection.execute(
                f"SELECT * {source}{ordered} LIMIT {int(limit)} OFFSET {int(offset)}", values
            ).df()
        except Exception as error:  # duckdb's errors have no common base that is not Exception
            raise RunError(f"{values['file']} cannot be read ({str(error).splitlines()[0]})") from None
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

    with pq.ParquetFile(_file(run, name)) as source:
        first = True
        for batch in source.iter_batches(batch_size=rows):
            plain = [c.dictionary_decode() if pa.types.is_dictionary(c.type) else c for c in batch.columns]
            out = io.BytesIO()
            options = pyarrow.csv.WriteOptions(include_header=first)
            pyarrow.csv.write_csv(pa.record_batch(plain, names=batch.schema.names), out, options)
            first = False
            yield out.getvalue()
        if first:
            yield (",".join(f'"{c}"' for c in source.schema_arrow.names) + "\n").encode()


def _file(run: Path, name: str) -> Path:
    if name not in names(run):
        raise RunError(f"{Path(run).name} has no table {name}; it has {', '.join(names(run)) or 'none'}")
    return Path(run) / "artifacts" / f"{name}.parquet"


def _quoted(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'
