"""``predict``: the time of a fusion scheme from a cost model, learned from pairs of bits and milliseconds or
saved before."""

from __future__ import annotations

from fusescope.charts import numbers
from fusescope.search import encoding
from fusescope.search.learning import cost_model, pairs

HELP = "the time of a fusion scheme, predicted from schemes that were measured"


def arguments(parser, words) -> None:
    parser.add_argument(
        "code", metavar="CODE", help="exactly 16 characters of 0 and 1, or a decimal value from 0 to 65535"
    )
    parser.add_argument(
        "--data",
        required=True,
        metavar="FILE",
        help="lines of bits, a tab, milliseconds; or a saved cost model (JSON)",
    )
    parser.add_argument(
        "--threshold",
        type=float,
        metavar="MS",
        help="High performance (1) is at most this (default: the median)",
    )
    parser.add_argument(
        "--save", metavar="FILE", help="learn from the pairs and keep the cost model there, as JSON"
    )


def run(args, out) -> int:
    encoding.value(args.code)  # a bad code is said before anything is learned
    if args.save:
        cost_model.train(pairs.read(args.data)).save(args.save)
    data = cost_model.predict(args.code, args.save or args.data, args.threshold)
    out.answer(data, text(data))
    return 0


def text(data: dict) -> str:
    """The same for people."""
    interval = f"[{numbers.time(data['low'])}, {numbers.time(data['high'])}]"
    seen = data["validation"]
    lines = [
        f"{data['code']}  {numbers.time(data['ms'])}  {interval}  {data['performance']} ({data['class']})",
        f"High means at most {numbers.time(data['threshold_ms'])}; probability "
        f"{numbers.percent(data['probability'])}",
    ]
    if data["measured_ms"] is not None:
        lines.append(f"measured: {numbers.time(data['measured_ms'])}")
    lines.append(
        f"trained on {data['pairs']} schemes; held-out error {numbers.three(seen['error_percent'])} %, "
        f"rank correlation {numbers.three(seen['rank_correlation'])}"
    )
    return "\n".join(lines)
