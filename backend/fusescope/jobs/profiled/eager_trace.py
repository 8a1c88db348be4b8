"""The run that a CUDA graph's kernels get their operators from: the trace of what was captured, run
eagerly."""

from __future__ import annotations

import tempfile
from pathlib import Path

from fusescope.core.schema import Parameter


def find(run_id: str) -> Path:
    """The folder of a run whose kernels are known; ValueError where there is none."""
    from fusescope.core.errors import RunError
    from fusescope.store import library, profile

    try:
        path = library.find(run_id)
    except RunError as error:
        raise ValueError(str(error)) from None
    if "kernels" not in profile.names(path):
        raise ValueError(f"captured must be a run with a trace, and {path.name} holds no kernels")
    return path


CAPTURED = Parameter(
    "captured",
    "text",
    None,
    "id of a run with the trace of the eager form of what replays a CUDA graph: replayed kernels get their "
    "operators from there, by order",
    further=lambda run_id: find(run_id).name,
)


def kernels(run_id: str | None) -> list[dict] | None:
    """Its kernels, in order of time; None for None."""
    from fusescope.store import profile

    return profile.rows(find(run_id), "kernels") if run_id else None


def read(trace: Path) -> list[dict]:
    """The kernels of a Chrome trace, in order of time. ValueError for what is none, ModuleNotFoundError
    without pyarrow."""
    from fusescope.profiling.chrome import importer
    from fusescope.store import profile

    with tempfile.TemporaryDirectory() as home:
        artifacts = Path(home) / "artifacts"
        artifacts.mkdir()
        importer.load(trace, lambda name: artifacts / name)
        return profile.rows(Path(home), "kernels")
