"""The tables that a profile (an import, a trace) left in a run's artifacts, for pages and the command line."""

from __future__ import annotations

from pathlib import Path

from backend.core.errors import RunError
from backend.store import files

SCHEMA = 1


def summary(run: Path) -> dict | None:
    """artifacts/summary.json of a run folder; None where it has no profile. RunError: torn, or from a newer version."""
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

    file = Path(run) / "artifacts" / f"{name}.parquet"
    if name not in names(run):
        raise RunError(f"{Path(run).name} has no table {name}; it has {', '.join(names(run)) or 'none'}")
    try:
        return pq.read_table(file, columns=columns)
    except (pa.ArrowException, OSError) as error:
        raise RunError(f"{file} cannot be read ({error})") from None
