"""One door for every kind of profile file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fusescope.profiling.chrome import importer
from fusescope.profiling.collect import snapshot
from fusescope.profiling.nsight import ncu, ncu_source, nsys


def load(
    path: Path,
    form: str,
    target: Callable[[str], Path],
    progress: Callable[[float, str], None],
    captured: list[dict] | None = None,
) -> dict:
    """Write the tables of a file of that form (``forms.detect``) and give the summary, which is summary.json
    too.

    target(name) names a file to write; progress(share, text) may raise to stop. captured: kernels of the
    trace of the eager run that CUDA graphs of this one were captured from (rows of its table). ValueError:
    one sentence on what is wrong.
    """
    if form == "chrome":
        return importer.load(path, target, progress, captured=captured)
    if form == "nsys":
        return nsys.load(path, target, progress, captured)
    if form in ("ncu", "ncu-rep"):
        return ncu.load(path, target, progress)
    if form == "ncu-source":
        return ncu_source.load(path, target, progress)
    if form == "snapshot":
        return snapshot.load(path, target, progress)
    raise ValueError(f"there is no form {form!r} of profile file")
