"""Import of anyone's profile into a run: Chrome trace, Nsight Systems .sqlite, Nsight Compute .csv, memory
snapshot."""

from __future__ import annotations

import gzip
import importlib.util
import os
import shutil
from pathlib import Path

from fusescope.core import paths
from fusescope.core.errors import Unsupported
from fusescope.core.machine.conditions import UNNAMED_DEVICE
from fusescope.core.schema import Parameter, complete
from fusescope.jobs.profiled import eager_trace

TITLE = "Import"
DEADLINE_S = 3600.0
_KEEP_BYTES = 256 << 20  # a plain file up to this size is kept, compressed, in the run
_NAMES = {
    "chrome": "trace.json.gz",
    "nsys": "nsys.sqlite",
    "ncu": "ncu.csv",
    "ncu-source": "ncu-source.csv",
    "ncu-rep": "ncu.ncu-rep",
    "snapshot": "memory-snapshot.pickle",
}


PARAMETERS = (
    Parameter("file", "text", help="path of a file, or of a folder with a trace per rank"),
    Parameter("files", "names", None, "traces of one job, one per rank, instead of all in the folder"),
    Parameter("keep", "bool", None, "keep the file itself in the run; null: where it is small or packed"),
    eager_trace.CAPTURED,
    Parameter("discard", "bool", False, "delete the file, an upload, after the import"),
    Parameter("form", "any", None, "what the file is; its content decides"),
)


def validate(spec: dict) -> dict:
    """The spec as PARAMETERS describes it, with the path absolute and "form" from the file's content.
    ValueError in one sentence; Unsupported without pyarrow."""
    from fusescope.profiling import forms

    whole = complete("an import", PARAMETERS, spec)
    path = _absolute(whole["file"])
    ranks = bool(whole["files"]) or path.is_dir()
    own = path if ranks else path.parent  # what is removed
    if whole["discard"] and own.parent != Path(os.path.abspath(paths.profiles() / ".uploads")):
        raise ValueError(f"only an upload is discarded after its import, and {path} is none")
    if importlib.util.find_spec("pyarrow") is None:
        raise Unsupported(
            "an import writes Parquet tables, but pyarrow is not installed: python -m pip install pyarrow"
        )
    if ranks:
        given = None if whole["files"] is None else [str(_absolute(f)) for f in whole["files"]]
        if whole["captured"]:
            raise ValueError("captured links the CUDA graphs of a single trace, not of many ranks")
        _ranks(path, given)
        return whole | {"file": str(path), "files": given, "form": "ranks"}
    return whole | {"file": str(path), "form": forms.detect(path)}


def _absolute(path: str) -> Path:
    return Path(os.path.abspath(os.path.expanduser(path)))


def _ranks(path: Path, given: list[str] | None) -> tuple[dict[int, Path], list[str]]:
    """(rank → trace, notes). ValueError: one sentence on why they are no profile of many ranks."""
    from fusescope.profiling.ranks import choose

    found, without = choose.ranks([Path(f) for f in given] if given else choose.files(path), bool(given))
    names = ", ".join(p.name for p in without[:5]) + (" …" if len(without) > 5 else "")
    return found, [f"left out, for want of a rank: {names}"] if without else []


def name(spec: dict) -> str:
    return f"import of {str(spec.get('file', '')).rpartition('/')[2]}"


def device(spec: dict) -> None:
    """Reading a file holds no device."""
    return None


def run(spec: dict, reporter) -> None:
    """Write the tables of ``profiling.profile`` (ncu and snapshot: their own) and summary.json as
    artifacts."""
    from fusescope.profiling import importing

    path = Path(spec["file"])
    reporter.environment(device_name=None)  # the file's, known at the end; not that of this machine

    def progress(share: float, text: str) -> None:
        reporter.check()
        reporter.progress(int(100 * share), 100, text)

    if spec["form"] == "chrome" and importlib.util.find_spec("msgspec") is None:
        reporter.log(
            "msgspec is not installed, so reading takes several times as long: "
            "python -m pip install msgspec==0.22.0"
        )
    progress(0.0, f"reading {path.name}")
    if spec["form"] == "ranks":
        _run_ranks(path, spec, reporter, progress)
        return
    captured = eager_trace.kernels(spec["captured"])
    summary = importing.load(path, spec["form"], reporter.artifact, progress, captured)
    gpu = next((g["name"] for g in summary.get("gpus", ()) if g.get("name")), None)
    reporter.environment(device_name=gpu or UNNAMED_DEVICE, imported_from=path.name)
    _keep(path, spec, reporter)
    if spec.get("discard"):
        shutil.rmtree(path.parent, ignore_errors=True)
    for note in summary["notes"]:
        reporter.log(note)
    rows = ", ".join(f"{count:,} {name}" for name, count in summary["rows"].items() if count)
    reporter.progress(100, 100, f"{rows or 'nothing to show'} from {path.name}")


def _run_ranks(path: Path, spec: dict, reporter, progress) -> None:
    """The same of a folder or several files, a trace per rank."""
    from fusescope.profiling.ranks import importer

    files, notes = _ranks(path, spec["files"])
    sizes = [f.stat().st_size for f in files.values()]
    keep = sum(sizes) <= _KEEP_BYTES if spec["keep"] is None else spec["keep"]
    if not keep:
        reporter.log(f"the traces themselves are not kept in the run; they stay in {path}")
    summary = importer.load(files, reporter.artifact, progress, keep, notes)
    gpu = next((g["name"] for g in summary["gpus"] if g.get("name")), None)
    reporter.environment(device_name=gpu or UNNAMED_DEVICE, imported_from=path.name)
    if spec["discard"]:
        shutil.rmtree(path, ignore_errors=True)
    for note in summary["notes"]:
        reporter.log(note)
    rows = ", ".join(f"{count:,} {name}" for name, count in summary["rows"].items() if count)
    reporter.progress(100, 100, f"{rows} from {path.name}")


def _keep(path: Path, spec: dict, reporter) -> None:
    """The file itself next to its tables, so that the run is whole wherever it is copied."""
    with open(path, "rb") as f:
        packed = f.read(2) == b"\x1f\x8b"
    if spec["keep"] is False or (spec["keep"] is None and path.stat().st_size > _KEEP_BYTES):
        reporter.log(f"the file itself is not kept in the run; it stays at {path}")
        return
    target = reporter.artifact(_NAMES[spec["form"]])
    if packed == (target.suffix == ".gz"):
        shutil.copyfile(path, target)
    elif packed:
        with gzip.open(path, "rb") as source, open(target, "wb") as out:
            shutil.copyfileobj(source, out, 1 << 20)
    else:
        with open(path, "rb") as source, gzip.open(target, "wb", compresslevel=1) as out:
            while block := source.read(1 << 22):
                reporter.check()
                out.write(block)
