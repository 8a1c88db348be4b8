"""``scores``: how sparse a model's attention probabilities are on an input, as the job behind the Masks page
looks at them."""

from __future__ import annotations

import statistics

from fusescope import models
from fusescope.analysis.scores import TILES
from fusescope.cli import case_options
from fusescope.cli.numbers import seed
from fusescope.cli.output import say, table
from fusescope.core.errors import RunError

HELP = "how sparse a model's attention probabilities are: shares, zeros, entropy, tiles that could be skipped"


def arguments(parser, words) -> None:
    known = models.names()
    parser.add_argument("op", metavar="NAME", choices=known, help=", ".join(known))
    parser.add_argument(
        "--text", metavar="FILE", help="a text to analyse, with --tokenizer (default: random tokens)"
    )
    parser.add_argument("--tokenizer", metavar="DIR", help="a local folder with the tokenizer of --text")
    parser.add_argument(
        "--tokens", metavar="FILE", help="token ids: .npy of one or two dimensions, or one sequence per line"
    )
    parser.add_argument("--tile", type=int, choices=TILES, default=64, help="side of a tile (default 64)")
    parser.add_argument(
        "--checkpoint",
        metavar="DIR",
        help="a local folder with config.json and *.safetensors (default: random weights)",
    )
    parser.add_argument("--seed", type=seed(), default=0, help="seed of weights and random tokens")
    case_options.add(parser, words, whole_models=True)


def run(args, out) -> int:
    from fusescope.cli.follow import follow, submitted
    from fusescope.store import library, tables

    run_id = submitted("scores", specify(args), args.title)
    say(f"{run_id}: attention scores of {args.op}")
    ended = follow(run_id)
    if ended.status != "done":
        raise RunError(f"{run_id} {ended.status}: {ended.reason or 'no reason given'}")
    report = tables.read(library.find(run_id), "scores")
    data = {"run": run_id} | {
        k: report[k] for k in ("model", "case", "dtype", "tile", "lengths", "thresholds", "padding")
    }
    data["layers"] = [_layer(layer) for layer in report["layers"]]
    out.answer(data, text(report) + f"\n\nrun {run_id}")
    return 0


def specify(args) -> dict:
    """The job that the arguments ask for; ValueError for what cannot be."""
    device, _ = case_options.device(args)
    cases = case_options.cases(args)
    if len(cases) != 1:
        raise ValueError(f"scores are analysed on one case, not {len(cases)}")
    if bool(args.text) != bool(args.tokenizer) or (args.text and args.tokens):
        raise ValueError("an input is --text with --tokenizer, or --tokens, or neither for random tokens")
    given = "random"
    if args.tokens:
        given = {"tokens": args.tokens}
    elif args.text:
        try:
            with open(args.text, encoding="utf-8") as file:
                given = {"text": file.read(), "tokenizer": args.tokenizer}
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"{args.text} cannot be read as a text: {error}") from None
    return {
        "model": args.op,
        "case": cases[0],
        "dtype": case_options.dtype(args, device),
        "device": device,
        "checkpoint": args.checkpoint,
        "input": given,
        "tile": args.tile,
        "seed": args.seed,
    }


def text(report: dict) -> str:
    """A line per layer, over its heads; then what skipping tiles would cost, and padding."""
    from fusescope.charts.numbers import percent, three

    body = []
    for layer in report["layers"]:
        heads = layer["heads"]
        live = sum(h["live"] for h in heads) or 1
        below = [sum(h["below"][i] for h in heads) / live for i in range(len(report["thresholds"]))]
        zeros = sum(h["zeros"] for h in heads) / live
        bits = statistics.fmean(h["entropy"] for h in heads)
        body.append(
            [
                layer["name"],
                *(percent(b) for b in below),
                percent(zeros),
                three(bits),
                three(heads[0]["most_bits"]),
            ]
        )
    head = ["attention", *(f"< {t:g}" for t in report["thresholds"]), "zeros", "bits", "at most"]
    parts = [table(head, body, "l" + "r" * (len(head) - 1))]
    every = [h["skip"] for layer in report["layers"] for h in layer["heads"]]
    rows = []
    for i, t in enumerate(report["thresholds"]):
        skipped, tiles = sum(s[i]["skipped"] for s in every), sum(s[i]["tiles"] for s in every)
        errors = [s[i]["error"] for s in every]
        rows.append(
            [
                f"{t:g}",
                percent(skipped / tiles if tiles else 0.0),
                three(statistics.median(errors)),
                three(max(errors)),
            ]
        )
    parts.append(
        table([f"tiles of {report['tile']} below", "skippable", "median error", "worst"], rows, "rrrr")
    )
    waste = report["padding"]
    parts.append(
        f"padding wastes {percent(waste['tokens'])} of the tokens and {percent(waste['scores'])} of the "
        "score elements"
    )
    return "\n\n".join(parts)


def _layer(layer: dict) -> dict:
    """A layer's figures without its pictures."""
    return {
        "name": layer["name"],
        "heads": [{k: v for k, v in h.items() if k not in ("heat", "histogram")} for h in layer["heads"]],
    }
