"""``bench``: check and time implementations of an operator on cases, as the job behind the Kernels page
does."""

from __future__ import annotations

from fusescope import ops
from fusescope.charts.numbers import plural
from fusescope.cli import case_options, cases
from fusescope.cli.output import say
from fusescope.cli.tables.records import show
from fusescope.core.records import BenchSpec, Record, Run

HELP = "compare implementations of an operator: correctness, speed and how certain it is"


def arguments(parser, words) -> None:
    known = ops.names()
    parser.add_argument("op", metavar="OP", choices=known, help=", ".join(known))
    parser.add_argument(
        "--impl",
        action="append",
        metavar="A,B",
        help="implementations, file.py:function among them, or all (default)",
    )
    parser.add_argument("--baseline", default="eager", help="what the speed-up is over (default eager)")
    case_options.add_sampling(
        parser, "most time to sample all implementations on one case and mode (default 5)", cache="both"
    )
    case_options.add_certainty(parser)
    case_options.add_cluster(parser)
    case_options.add(parser, words)


def run(args, out) -> int:
    from fusescope.cli.follow import follow, submitted
    from fusescope.store import folder, library

    spec = specify(args)
    run_id = submitted("bench", spec.to_json() | {"cluster": args.cluster}, args.title)
    say(f"{run_id}: {plural(len(spec.impls), 'implementation')} on {plural(len(spec.cases), 'case')}")
    ended = follow(run_id)
    records = folder.records(library.find(run_id))
    text = show(records, spec.baseline, ended.environment)
    out.answer(answer(run_id, spec.baseline, records), f"{text}\n\nrun {run_id}")
    return code(ended, records)


def specify(args) -> BenchSpec:
    """The comparison that the arguments ask for; ValueError for what the operator, the masks or this machine
    do not have."""
    device, arch = case_options.device(args)
    impls = ops.chosen(args.op, cases.split_impls(args.impl or ["all"]), device, arch)
    further = {k: v for k, v in (("budget_s", args.budget), ("seed", args.seed)) if v is not None}
    return BenchSpec(
        op=args.op,
        impls=tuple(i.name for i in impls),
        cases=tuple(case_options.cases(args)),
        baseline=args.baseline,
        dtype=case_options.dtype(args, device),
        device=device,
        cache=args.cache,
        **further,
        **case_options.certainty(args),
    )


def answer(run_id: str, baseline: str, records: list[Record]) -> dict:
    """What --json prints (bench.json)."""
    return {"run": run_id, "baseline": baseline, "records": [r.to_json() for r in records]}


def code(run: Run, records: list[Record]) -> int:
    """1 where the job did not finish or a kernel of ours or of the user's was wrong, crashed or failed; a
    peer may."""
    from fusescope.cli.follow import done

    if not done(run):
        return 1
    peers = ops.load(run.spec["op"]).PEERS
    bad = [r for r in records if r.status in ("wrong", "crashed", "error") and r.impl not in peers]
    for r in bad:
        say(f"error: {r.impl} {r.status}: {r.reason}")
    return 1 if bad else 0
