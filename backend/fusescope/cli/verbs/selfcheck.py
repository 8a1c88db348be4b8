"""``selfcheck``: what the timer, the comparison and the check are worth on this machine."""

from __future__ import annotations

from fusescope.cli.numbers import seed
from fusescope.cli.output import say, table
from fusescope.core.errors import RunError
from fusescope.core.machine import environment

HELP = "the instrument's own error: equal implementations, planted slow-downs, wrong kernels, other timers"
_MARKS = {True: "passed", False: "FAILED", None: "open"}


def arguments(parser, words) -> None:
    parser.add_argument("--gpu", action="store_true", help="on the first GPU (default: on the CPU)")
    parser.add_argument("--runs", type=int, help="comparisons of equal implementations (default 10)")
    parser.add_argument("--seeds", type=int, help="inputs that each wrong kernel is tried on (default 2)")
    parser.add_argument("--loops", type=int, help="keep so many CPUs busy meanwhile (default 0)")
    parser.add_argument("--seed", type=seed(), help="the first seed (default 0)")
    parser.add_argument("--title", default="", help="a name for the run")


def run(args, out) -> int:
    from fusescope.cli.follow import follow, submitted
    from fusescope.store import library, tables

    spec = {k: v for k in ("runs", "seeds", "loops", "seed") if (v := getattr(args, k)) is not None}
    if args.gpu and environment.devices() == ["cpu"]:
        raise ValueError("--gpu needs an NVIDIA GPU, and none was found here; without it the CPU is checked")
    run_id = submitted("selfcheck", spec | {"device": "cuda:0" if args.gpu else "cpu"}, args.title)
    say(f"{run_id}: self-check")
    ended = follow(run_id)
    if ended.status != "done":
        raise RunError(f"{run_id} {ended.status}: {ended.reason or 'no reason given'}")
    report = tables.read(library.find(run_id), "selfcheck")
    out.answer({"run": run_id} | {k: v for k, v in report.items() if k != "schema"}, text(report, run_id))
    return 1 if report["failed"] else 0


def text(report: dict, run_id: str) -> str:
    """The table and its sum."""
    rows = [
        [r["part"], r["check"], r["figure"], r["limit"], _MARKS[r["passed"]], r["note"]]
        for r in report["rows"]
    ]
    count = ", ".join(f"{report[k]} {k}" for k in ("passed", "failed", "open"))
    head = ["part", "check", "found", "wanted", "", "note"]
    return f"{report['device_name']}\n\n{table(head, rows)}\n\n{count}\n\nrun {run_id}"
