"""What a job about a model left next to its records: a report as artifacts/NAME.json.gz, written by its kind,
read here."""

from __future__ import annotations

import gzip
import os
import zlib
from pathlib import Path
from typing import Any

from fusescope.core.errors import RunError
from fusescope.store import files
from fusescope.store.bounded import plain

SCHEMA = 1
_MOST = 1 << 28
"""Bytes of a report once unpacked; a file from elsewhere may claim anything."""


def read(run: str | Path, name: str) -> dict[str, Any]:
    """The report of that name in a run folder. RunError: it is not there, torn, or from a newer version."""
    file = Path(run) / "artifacts" / f"{name}.json.gz"
    if not os.path.lexists(file):
        raise RunError(f"{Path(run).name} has no {name} report; its log says how far it came")
    try:
        with plain.opened(file) as whole, gzip.open(whole) as packed:
            most = min(_MOST, files.unpacked_limit(file))
            text = packed.read(most + 1)
        data = files.parse(text) if len(text) <= most else None
    except (RecursionError, OSError, EOFError, ValueError, zlib.error) as error:
        why = getattr(error, "strerror", None) or "it is cut short or damaged"
        raise RunError(f"{file} cannot be read: {why}") from None
    if not isinstance(data, dict) or not isinstance(data.get("schema"), int):
        raise RunError(f"{file} is no {name} report")
    if data["schema"] > SCHEMA:
        raise RunError(f"{file} was written by a newer version; update FuseScope to open it")
    return data
