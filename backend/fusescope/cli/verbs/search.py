"""``search``: the fastest fusion scheme with few evaluations, as the job behind the Fusion page does."""

from __future__ import annotations

from fusescope.charts import numbers
from fusescope.cli import case_options, layer
from fusescope.cli.numbers import integer, seconds, seed
from fusescope.cli.output import say, table
from fusescope.core.records import Speedup
from fusescope.search import encoding
from fusescope.search.learning import explore

HELP = "find the fastest fusion scheme of a layer by measuring a few per cent of the schemes"
SHOWN = 6  # of the boundaries, those that matter most


def arguments(parser, words) -> None:
    text = "; ".join(f"{name}: {what}" for name, what in explore.STRATEGIES.items())
    parser.add_argument("--strategy", choices=explore.STRATEGIES, default="guided", help=text)
    parser.add_argument(
        "--evaluations",
        type=integer(1),
        default=100,
        metavar="N",
        help="schemes measured at most (default 100)",
    )
    parser.add_argument("--seconds", type=seconds(), metavar="S", help="or as long as this")
    parser.add_argument(
        "--range",
        action="append",
        nargs=2,
        metavar=("A", "B"),
        help="first and last code; may be repeated (default: the default ranges)",
    )
    parser.add_argument(
        "--replay", metavar="RUN", help="measure nothing: play the search on the times of this traverse"
    )
    parser.add_argument("--seed", type=seed(), default=0)
    parser.add_argument("--title", default="", help="what the run is called in the library")
    case_options.add_cluster(parser)
    layer.options(parser)


def run(args, out) -> int:
    from fusescope.cli.follow import done, follow, submitted
    from fusescope.search import sessions

    run_id = submitted("search", specify(args), args.title)
    say(f"{run_id}: {args.strategy} search, at most {args.evaluations} schemes")
    ended = follow(run_id)
    data = answer(run_id, ended.status, ended.reason, sessions.found(run_id))
    out.answer(data, text(data))
    return 0 if done(ended) and data["result"] else 1


def specify(args) -> dict:
    """The job's spec; ValueError for what is no code or no such layer."""
    spec = layer.setting(args).spec() | {
        "strategy": args.strategy,
        "evaluations": args.evaluations,
        "seed": args.seed,
        "cluster": args.cluster,
    }
    ranges = [[encoding.value(a), encoding.value(b)] for a, b in args.range or ()]
    return spec | {"seconds": args.seconds, "ranges": ranges or None, "replay": args.replay}


def answer(run_id: str, status: str, reason: str | None, found: dict | None) -> dict:
    """What --json prints (search.json); null and empty lists where the search did not get so far."""
    found = found or {}
    lists = {name: found.get(name) or [] for name in ("history", "boundaries", "segments")}
    return {
        "run": run_id,
        "status": status,
        "reason": reason,
        "strategy": found.get("strategy"),
        "result": found.get("result"),
        **lists,
    }


def text(data: dict) -> str:
    """The same for people."""
    best = data["result"]
    if not best:
        return f"no scheme was measured; run {data['run']}"
    lines = [f"{best['code']}  {numbers.time(best['ms'])}  after {len(data['history'])} schemes", ""]
    rows = [
        [
            f"over {name}",
            numbers.ratio(s["median"]),
            f"[{numbers.three(s['low'])}, {numbers.three(s['high'])}]",
            Speedup.from_json(s).words,
        ]
        for name, s in (best.get("speedups") or {}).items()
        if s
    ]
    if rows:
        lines += [table(["speed-up", "×", "95 %", "verdict"], rows, "lrrl"), ""]
    known = [b for b in data["boundaries"] if b["effect_ms"] is not None and (b["low"] > 0 or b["high"] < 0)]
    if known:
        lines.append("What matters, and what it adds to the time (95 % intervals, ms, without zero):")
        lines += [
            f"  {_place(b)}: {_effect(b)}" for b in sorted(known, key=lambda b: -abs(b["effect_ms"]))[:SHOWN]
        ]
        lines.append("")
    return "\n".join([*lines, f"run {data['run']}"])


def _effect(boundary: dict) -> str:
    sign = "+" if boundary["effect_ms"] > 0 else "−"
    interval = f"[{numbers.three(boundary['low'])}, {numbers.three(boundary['high'])}]"
    return f"{sign}{numbers.time(abs(boundary['effect_ms']))} {interval}"


def _place(boundary: dict) -> str:
    if boundary["after"] is None:
        return boundary["names"][1]
    after, (left, right) = boundary["after"], boundary["names"]
    return f"a cut between {after} {left} and {after + 1} {right}"
