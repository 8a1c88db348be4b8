"""``runs``: the library of runs: list, show, compare, export, import, report, tag, resume, cancel, delete."""

from __future__ import annotations

from pathlib import Path

from fusescope.analysis.compare.columns import BY
from fusescope.charts.numbers import size
from fusescope.cli.actions import actions
from fusescope.cli.numbers import integer
from fusescope.cli.output import say
from fusescope.cli.tables import run_text
from fusescope.cli.tables.records import show as record_table
from fusescope.cli.tables.roof import unit
from fusescope.core.errors import RunError
from fusescope.core.records import RUN_STATES, Run
from fusescope.store import library

HELP = "the library of runs: list, show, compare, export, import, report, tag, resume, cancel, delete"
_STOP_S = 60.0  # how long to wait for a cancelled run


def arguments(parser, words) -> None:
    action = actions(parser)
    sub = action("list", "runs that match", list_runs)
    sub.add_argument("--kind", help="job kind, such as bench")
    sub.add_argument("--status", choices=RUN_STATES)
    sub.add_argument("--op", help="operator")
    sub.add_argument("--tag")
    sub.add_argument("--text", help="text in the title, notes, device, implementations …")
    sub.add_argument(
        "--recorded", action="store_true", default=None, help="only the recordings that ship with the project"
    )
    sub.add_argument("--sort", choices=library.ORDERS, default="newest")
    sub.add_argument("--limit", type=integer(1), default=50)
    sub.add_argument("--offset", type=integer(), default=0)
    sub = action("show", "one run: its configuration, device and records", show)
    sub.add_argument("run", help="the run's id, or its beginning")
    sub = action("compare", "runs against the first: may they be compared, and what is faster", compare)
    sub.add_argument("base", help="the run that is compared with")
    sub.add_argument("run", nargs="*", help="the runs that are compared; none for columns of one run")
    sub.add_argument("--by", choices=BY, default="run", help="what a column stands for")
    sub.add_argument(
        "--columns", nargs="+", default=[], metavar="VALUE", help="the columns to show, the base first"
    )
    sub.add_argument(
        "--leave-out",
        nargs="+",
        default=[],
        metavar="KEY",
        help="parameters, dtype or device that cases need not have in common",
    )
    sub = action("export", "one run as one file", export)
    sub.add_argument("run")
    sub.add_argument(
        "--to", default=".", metavar="PATH", help="the file, or the folder to put it in (default: here)"
    )
    sub = action("import", "runs from exported files", load)
    sub.add_argument("file", nargs="+")
    sub = action("report", "one run as one HTML page that opens anywhere, charts included", report)
    sub.add_argument("run")
    sub.add_argument(
        "--to", default=".", metavar="PATH", help="the .html file, or the folder to put it in (default: here)"
    )
    sub = action("tag", "change tags, title or notes of a run", tag)
    sub.add_argument("run")
    sub.add_argument("--add", nargs="+", default=[], metavar="TAG")
    sub.add_argument("--remove", nargs="+", default=[], metavar="TAG")
    sub.add_argument("--title")
    sub.add_argument("--notes")
    sub = action(
        "resume",
        "continue a run that was interrupted, cancelled or failed; its records are kept",
        resume,
    )
    sub.add_argument("run")
    sub.add_argument(
        "--trust",
        action="store_true",
        help="run and read the files of this machine that an imported run names",
    )
    sub = action("cancel", "stop a run that is queued or running; its records are kept", cancel)
    sub.add_argument("run")
    sub = action("delete", "remove runs for good", delete)
    sub.add_argument("run", nargs="+")


def run(args, out) -> int:
    return args.work(args, out)


def list_runs(args, out) -> int:
    found, total = library.runs(
        args.kind,
        args.status,
        args.op,
        args.text,
        args.recorded,
        args.tag,
        args.limit,
        args.offset,
        args.sort,
    )
    broken = library.broken()
    text = run_text.listing(found, broken, total, args.offset)
    data = {"total": total, "offset": args.offset, "runs": [r.to_json() for r in found]}
    out.answer(data | {"broken": [{"id": name, "reason": reason} for name, reason in broken]}, text)
    return 0


def show(args, out) -> int:
    from fusescope.store import folder
    from fusescope.store.bounded import plain

    path = _find(args.run)
    found, records = folder.read(path), folder.records(path)
    home = path / "artifacts"
    files = [p for p in plain.files(path) if home in p.parents]
    artifacts = [{"name": str(p.relative_to(home)), "bytes": p.stat().st_size} for p in files]
    data = {
        "run": found.to_json(),
        "path": str(path),
        "records": [r.to_json() for r in records],
        "artifacts": artifacts,
    }
    out.answer(data, run_text.whole(found, path, records, artifacts))
    return 0


def compare(args, out) -> int:
    from fusescope.analysis.compare import columns, conditions
    from fusescope.store import compare as store_compare

    ids = [_find(name).name for name in (args.base, *args.run)]
    sources = [columns.Source(*found) for found in store_compare.read(ids)]
    answers = [conditions.judge(sources[0], other, args.leave_out) for other in sources[1:]]
    left_open = {s.run.id: one.left_open for s, one in zip(sources[1:], answers, strict=True)}
    found = columns.compare(sources, args.by, args.leave_out, args.columns, left_open)
    if len(found.columns) < 2:
        raise ValueError("runs compare takes two runs or more, or columns of one run by another --by")
    data = run_text.comparison_data(sources, answers, found)
    out.answer(data, run_text.comparison(sources, answers, found))
    return 0


def export(args, out) -> int:
    from fusescope.store import transfer

    run_id = _find(args.run).name
    made = transfer.export(run_id, Path(args.to))
    out.answer(
        {"run": run_id, "file": str(made), "bytes": made.stat().st_size},
        f"{made}  {size(made.stat().st_size)}",
    )
    return 0


def report(args, out) -> int:
    from fusescope.charts import report as charts_report
    from fusescope.charts.fusion import report as fusion_report
    from fusescope.core import command
    from fusescope.search import sessions
    from fusescope.store import folder

    path = _find(args.run)
    found = folder.read(path)
    again = command.again(found.kind, found.spec)
    if found.kind in fusion_report.KINDS:
        records = sessions.records(path.name)
        page = charts_report.page(found, records, (), again)
    else:
        records = folder.records(path)
        page = charts_report.page(
            found, records, folder.samples(path), again, unit(records[0]) if records else "matrix"
        )
    target = Path(args.to)
    target = target / f"{found.id}.html" if target.is_dir() else target
    if not target.parent.is_dir():
        raise ValueError(f"--to: there is no folder {target.parent}")
    target.write_text(page)
    out.answer(
        {"run": found.id, "file": str(target), "bytes": target.stat().st_size},
        f"{target}  {size(target.stat().st_size)}",
    )
    return 0


def load(args, out) -> int:
    from fusescope.store import folder, transfer

    for name in args.file:
        if not Path(name).is_file():
            raise ValueError(f"there is no file {name}")
    found = [{"file": name, "run": transfer.load(Path(name))} for name in args.file]
    states = [run_text.status(folder.read(library.find(f["run"]))) for f in found]
    lines = [f"{state}  from {f['file']}" for state, f in zip(states, found)]
    out.answer({"imported": found}, "\n".join(lines))
    return 0


def tag(args, out) -> int:
    from fusescope.store import folder

    path = _find(args.run)
    before = folder.read(path)
    if not (args.add or args.remove or args.title is not None or args.notes is not None):
        raise ValueError("runs tag takes at least one of --add, --remove, --title, --notes")
    tags = [t for t in dict.fromkeys([*before.tags, *args.add]) if t not in args.remove]
    folder.write_notes(path, title=args.title, tags=tags, notes=args.notes)
    after = folder.read(path)
    data = {"run": after.id, "title": after.title, "tags": list(after.tags), "notes": after.notes}
    out.answer(data, f"{after.id}  {after.title}  tags: {', '.join(after.tags) or 'none'}")
    return 0


def resume(args, out) -> int:
    from fusescope.cli.follow import follow, resumed
    from fusescope.store import folder

    path = _find(args.run)
    ended = follow(resumed(path.name, args.trust))
    _settled(out, ended, folder.records(path))
    return 0 if ended.status == "done" else 1


def cancel(args, out) -> int:
    from fusescope.jobs import submit
    from fusescope.store import folder

    path = _find(args.run)
    if not folder.read(path).live:
        raise ValueError(
            f"{path.name} is {folder.read(path).status}; only a run that is queued or running can be stopped"
        )
    submit.cancel(path.name)
    say(f"{path.name}: {folder.CANCELLING}")
    _settled(out, submit.wait(path.name, _STOP_S), folder.records(path))
    return 0


def _settled(out, run: Run, records: list) -> None:
    """What became of a run: its state and its records."""
    data = {
        "run": run.id,
        "status": run.status,
        "reason": run.reason,
        "records": [r.to_json() for r in records],
    }
    text = record_table(records, run.spec.get("baseline"), run.environment) + "\n\n" if records else ""
    out.answer(data, f"{text}run {run.id} {run.status}" + (f": {run.reason}" if run.reason else ""))


def delete(args, out) -> int:
    from fusescope.store import transfer

    ids = [_find(name).name for name in args.run]
    for run_id in ids:
        transfer.delete(run_id)
    out.answer({"deleted": ids}, "\n".join(f"deleted {run_id}" for run_id in ids))
    return 0


def _find(run_id: str) -> Path:
    """The run's folder; an id that names none, or several, is a wrong argument."""
    try:
        return library.find(run_id)
    except RunError as error:
        raise ValueError(str(error)) from None
