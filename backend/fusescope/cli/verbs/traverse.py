"""``traverse``: every distinct fusion scheme of some ranges, checked and timed; resumable."""

from __future__ import annotations

from fusescope.charts.numbers import three
from fusescope.cli import case_options, layer
from fusescope.cli.numbers import integer, seconds, seed
from fusescope.cli.output import say, table
from fusescope.core import paths
from fusescope.core.errors import RunError
from fusescope.search import encoding
from fusescope.search.scheme.setting import OP

HELP = "measure every distinct fusion scheme of ranges of codes; resumable"
SHOWN = 10  # of the fastest schemes


def arguments(parser, words) -> None:
    parser.add_argument(
        "ends",
        metavar="A B",
        nargs="*",
        help="first and last code of each range, both included (default: 32768 49151 16384 24575)",
    )
    parser.add_argument(
        "--limit", type=integer(1), help="at most so many schemes, drawn evenly from the ranges"
    )
    parser.add_argument("--seed", type=seed(), default=0, help="of the inputs and of the draw (default 0)")
    parser.add_argument(
        "--budget", type=seconds(), metavar="SECONDS", help="sampling per scheme (default 0.02)"
    )
    parser.add_argument(
        "--deadline",
        type=seconds(),
        metavar="SECONDS",
        help="stop the job after this long; the same command resumes it",
    )
    parser.add_argument(
        "--after",
        metavar="RUN,RUN",
        help="earlier traverses of the same layer, on this or an equal machine; their schemes are not "
        "measured again",
    )
    parser.add_argument(
        "--part",
        metavar="START:STOP",
        help="only these positions (from 0, STOP excluded) of the order of measuring: to share a traverse "
        "among several GPUs",
    )
    parser.add_argument(
        "--fresh", action="store_true", help="a new run, where one with the same request could be resumed"
    )
    parser.add_argument("--no-segments", action="store_true", help="do not time each segment on its own")
    parser.add_argument("--title", default="", help="what the run is called in the library")
    case_options.add_cluster(parser)
    layer.options(parser)


def run(args, out) -> int:
    from fusescope.cli.follow import done, follow, resumed, submitted
    from fusescope.jobs import submit
    from fusescope.search import sessions

    spec = submit.validate("traverse", specify(args))
    run_id = None if args.fresh else unfinished(spec)
    if run_id:
        say(f"{run_id} was started with this request and is resumed")
        resumed(run_id)
    else:
        run_id = submitted("traverse", spec, args.title)
        say(run_id)
    ended = follow(run_id)
    data = summary(run_id, sessions.records(run_id))
    out.answer(data, f"{text(data)}\n\nrun {run_id}")
    if not done(ended):
        return 1
    return 1 if data["failures"] and not data["measured"] else 0


def specify(args) -> dict:
    """The job's spec; ValueError for an odd number of ends."""
    if len(args.ends) % 2:
        raise ValueError(
            f"ranges are given by their first and last codes in pairs, not by {len(args.ends)} codes"
        )
    ranges = [[encoding.value(a), encoding.value(b)] for a, b in zip(args.ends[::2], args.ends[1::2])] or None
    spec = layer.setting(args).spec() | {"ranges": ranges, "limit": args.limit, "seed": args.seed}
    spec |= {"cluster": args.cluster}
    spec |= {"segments": not args.no_segments, "after": args.after, "part": part(args.part)}
    further = {"budget_s": args.budget, "deadline_s": args.deadline}
    return spec | {k: v for k, v in further.items() if v is not None}


def part(text: str | None) -> list[int] | None:
    """ "1000:2000" as [1000, 2000]; ValueError for anything else."""
    if text is None:
        return None
    ends = text.split(":")
    if len(ends) != 2 or not all(end.isdecimal() for end in ends):
        raise ValueError(f"--part is START:STOP, two integers, not {text!r}")
    return [int(end) for end in ends]


def unfinished(spec: dict) -> str | None:
    """The latest run of the same request that can be resumed."""
    from fusescope.store import folder

    for path in sorted(paths.profiles().glob("*-traverse-*"), reverse=True):
        try:
            run = folder.read(path)
        except RunError:
            continue
        if {"after": None, "part": None, **run.spec} == spec and run.status in (
            "interrupted",
            "cancelled",
            "failed",
        ):
            return run.id
    return None


def summary(run_id: str, records) -> dict:
    """What --json prints (traverse.json)."""
    layers = [r for r in records if r.op == OP]
    schemes = [r for r in layers if encoding.is_code(r.impl)]
    good = sorted((r for r in schemes if r.status == "ok"), key=lambda r: r.ms)
    return {
        "run": run_id,
        "measured": len(good),
        "best": [_line(r) for r in good[:SHOWN]],
        "baselines": [_line(r) for r in layers if r not in schemes],
        "failures": [
            {"code": r.impl, "status": r.status, "reason": r.reason} for r in schemes if r.status != "ok"
        ],
    }


def _line(r) -> dict:
    speedup = None if r.speedup is None else r.speedup.median
    return {
        "code": r.impl,
        "status": r.status,
        "ms": r.ms,
        "speedup": speedup,
        "backend": r.backend,
        "reason": r.reason,
    }


def text(data: dict) -> str:
    """The same for people."""
    rows = [
        [
            d["code"],
            f"{1e3 * d['ms']:.4g}" if d["ms"] else d["status"],
            three(d["speedup"]) if d["speedup"] else "n/a",
            d["backend"] or d["reason"],
        ]
        for d in (*data["best"], *data["baselines"])
    ]
    lines = [f"{data['measured']} schemes measured; the fastest, and the baselines:", ""]
    lines.append(table(["scheme", "µs", "× unfused", "what it is"], rows, "lrr"))
    if data["failures"]:
        lines += ["", f"{len(data['failures'])} schemes failed, the first: {data['failures'][0]['reason']}"]
    return "\n".join(lines)
