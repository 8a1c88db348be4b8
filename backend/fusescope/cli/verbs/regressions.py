"""``regressions``: implementations whose newest run is slower than their best earlier one, over all runs."""

from __future__ import annotations

import difflib
import json

from fusescope.analysis.compare import regressions
from fusescope.cli.numbers import percent
from fusescope.cli.output import table
from fusescope.core import naming

HELP = "what is slower now than in its best earlier run; exit code 1 where anything is"


def arguments(parser, words) -> None:
    parser.add_argument("--op", help="operator")
    parser.add_argument("--impl", help="implementation")
    parser.add_argument("--device", dest="device_name", help='name of the device, such as "NVIDIA H200"')
    parser.add_argument(
        "--threshold",
        type=percent(100.0),
        default=100 * regressions.THRESHOLD,
        metavar="PERCENT",
        help="slow-down that all of the 95 %% interval must exceed (default: %(default)g)",
    )


def run(args, out) -> int:
    from fusescope.charts.bench import history
    from fusescope.store import compare

    rows = compare.history(args.op, args.impl, args.device_name)
    if args.impl and naming.kind(args.impl) == "peer":
        raise ValueError(f"{args.impl!r} is a peer: only our implementations and yours are followed")
    if not rows:
        _check_known(args, compare.history())
    found = regressions.series(rows)
    threshold = args.threshold / 100
    alarms = regressions.alarms(found, threshold)
    text = history.alarm_sentence(found, alarms, threshold)
    if alarms:
        data = history.alarm_table(alarms)
        rows = [[f"{v:.3g}" if isinstance(v, float) else str(v) for v in row] for row in data.to_numpy()]
        text += "\n\n" + table(list(data.columns), rows)
    undecided = regressions.undecided(found, threshold)
    out.answer(
        {
            "threshold": threshold,
            "followed": len(regressions.followed(found)),
            "undecided": [_named(one) | {"because": why.open} for one, why in undecided],
            "alarms": [_json(a) for a in alarms],
        },
        text,
    )
    return 1 if alarms else 0


def _check_known(args, rows: list[dict]) -> None:
    """ValueError for a name that no run has: a misspelt one would guard nothing, and never fail."""
    for what, key in (("operator", "op"), ("implementation", "impl"), ("device", "device_name")):
        given, there = getattr(args, key), sorted({row[key] for row in rows})
        if given is not None and there and given not in there:
            near = difflib.get_close_matches(given, there, 3) or there
            raise ValueError(f"no run has a time of the {what} {given!r}; there is {', '.join(near)}")


def _json(alarm: regressions.Alarm) -> dict:
    return _named(alarm.series) | {
        "ratio": alarm.ratio.median,
        "low": alarm.ratio.low,
        "high": alarm.ratio.high,
        "cause": alarm.cause,
        "best": _point(alarm.series.best),
        "now": _point(alarm.series.last),
    }


def _named(one: regressions.Series) -> dict:
    return {
        "op": one.op,
        "impl": one.impl,
        "case": json.loads(one.case),
        "dtype": one.dtype,
        "device_name": one.device_name,
        "mode": one.mode,
    }


def _point(point: regressions.Point) -> dict:
    return {"run": point.run, "commit": point.commit, "ms": point.time.median, "source": point.source}
