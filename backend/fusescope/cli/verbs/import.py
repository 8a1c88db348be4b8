"""``import``: a trace, an Nsight export, a memory snapshot, an exported run, or the traces of many ranks
become a run like any other."""

from __future__ import annotations

import os
import tarfile
import zipfile
from pathlib import Path

from fusescope.cli.output import say
from fusescope.cli.tables.profile_text import plain

HELP = "import a Chrome trace, Nsight .sqlite or .csv, memory snapshot, an exported run, or a folder of ranks"


def arguments(parser, words) -> None:
    parser.add_argument(
        "file",
        nargs="+",
        help=".json, .json.gz, .sqlite, .csv, .ncu-rep, .pickle, .fsrun.tar.gz or .zip; a folder of "
        "traces, one per rank, becomes one profile",
    )
    parser.add_argument(
        "--ranks", action="store_true", help="the files are traces of one job, one per rank: one profile"
    )
    parser.add_argument(
        "--title", default="", help="what the run is called in the library (default: the file's name)"
    )
    parser.add_argument(
        "--captured",
        metavar="RUN",
        help="the run with the eager trace that this file's CUDA graphs were captured from",
    )
    kept = parser.add_mutually_exclusive_group()
    kept.add_argument("--keep", action="store_true", default=None, help="keep a large file in the run, too")
    kept.add_argument(
        "--no-keep", dest="keep", action="store_false", help="keep the tables alone, not the file"
    )


def run(args, out) -> int:
    from fusescope.jobs import submit

    wanted = _wanted(args)
    for _, spec in wanted:  # all are looked at before the first is imported
        if spec is not None:
            submit.validate("import", spec)
    found = [_one(name, spec, args) for name, spec in wanted]
    out.answer({"imported": found}, "\n".join(_words(f) for f in found))
    return 0 if all(f["form"] == "run" or f["status"] == "done" for f in found) else 1


def _wanted(args) -> list[tuple[str, dict | None]]:
    """(file, the import's spec; None for an exported run). ValueError: --ranks with one file."""
    common = {"keep": args.keep, "captured": args.captured}
    if not args.ranks:
        return [(name, None if _is_bundle(Path(name)) else common | {"file": name}) for name in args.file]
    if len(args.file) == 1:
        if not Path(args.file[0]).is_dir():
            raise ValueError("--ranks takes a folder, or the traces of two ranks or more")
        return [(args.file[0], common | {"file": args.file[0]})]
    whole = os.path.commonpath([os.path.abspath(os.path.dirname(name)) for name in args.file])
    return [(whole, common | {"file": whole, "files": args.file})]


def _one(name: str, spec: dict | None, args) -> dict:
    from fusescope.cli.follow import follow, submitted
    from fusescope.jobs import submit
    from fusescope.store import folder, library, profile, transfer

    if spec is None:
        run = folder.read(library.find(transfer.load(Path(name))))
        return {
            "file": name,
            "form": "run",
            "run": run.id,
            "status": run.status,
            "reason": run.reason,
            "summary": None,
        }
    spec = submit.validate("import", spec)
    ended = follow(submitted("import", spec, args.title or Path(spec["file"]).name))
    if ended.status != "done":
        say(f"error: {ended.reason or ended.status}")
    summary = profile.summary(library.find(ended.id)) if ended.status == "done" else None
    return {
        "file": name,
        "form": spec["form"],
        "run": ended.id,
        "status": ended.status,
        "reason": ended.reason,
        "summary": summary,
    }


def _is_bundle(path: Path) -> bool:
    try:
        return path.is_file() and (zipfile.is_zipfile(path) or tarfile.is_tarfile(path))
    except (EOFError, OSError):  # a damaged archive: what it was meant to be is said by whoever reads it
        return False


def _words(found: dict) -> str:
    why = f" ({found['reason']})" if found["reason"] and found["form"] == "run" else ""
    lines = [f"{found['run']}  {found['status']}{why}  from {found['file']}"]
    summary = found["summary"] or {}
    lines += [f"  {count:,} {name}" for name, count in summary.get("rows", {}).items() if count]
    covered = summary.get("coverage") or {}
    if covered.get("kernels"):
        shares = ", ".join(
            f"{covered[k]:.1%} to a{'n' if k == 'operator' else ''} {k}"
            for k in ("launch", "operator", "module")
        )
        lines.append(f"  kernels linked: {shares}")
    lines += [f"  ! {plain(note)}" for note in summary.get("notes", ())]
    if summary.get("ranks"):
        lines.append(
            f"  time by rank, stragglers, collectives, critical path: fusescope ranks {found['run']}"
        )
    return "\n".join(lines)
