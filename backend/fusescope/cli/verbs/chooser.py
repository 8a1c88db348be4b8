"""``chooser``: which attention kernel auto takes and why, and fitting its time models to measured runs."""

from __future__ import annotations

from pathlib import Path

from fusescope.charts.numbers import three, time
from fusescope.cli import cases
from fusescope.cli.output import table
from fusescope.core import paths
from fusescope.core.errors import RunError
from fusescope.core.machine import environment
from fusescope.core.records import DTYPES
from fusescope.ops.attention.describe import cases as attention_cases
from fusescope.ops.attention.dispatch import cost_model, counts, fitting
from fusescope.store import folder

HELP = "predicted times of the attention kernels and which one auto takes; --fit fits them to measured runs"


def arguments(parser, words) -> None:
    parser.add_argument("--device-name", help="GPU model (default: that of the first GPU, else NVIDIA H200)")
    parser.add_argument(
        "--case",
        action="append",
        default=[],
        metavar="KEY=VALUE,…",
        help="an attention case to predict; may be repeated",
    )
    parser.add_argument("--dtype", choices=DTYPES, default="float16")
    parser.add_argument(
        "--fit",
        nargs="+",
        metavar="RUN",
        help="fit to these runs, by folder or id; recorded = all under profiles/recorded",
    )
    parser.add_argument(
        "--ship",
        action="store_true",
        help="with --fit: keep it in the source tree, for every user of that GPU",
    )


def run(args, out) -> int:
    if args.ship and not args.fit:
        raise ValueError("--ship goes with --fit RUN …")
    data = {"fit": None, "saved": None, "held_out": None, "predictions": []}
    if args.fit:
        made, held_out = _fit(args.fit, args.device_name)
        data["saved"] = str(
            cost_model.save(made, cost_model.SHIPPED if args.ship else cost_model.own_folder())
        )
        data["held_out"] = held_out
    else:
        name = args.device_name or next((g["name"] for g in environment.gpus()), "NVIDIA H200")
        found = cost_model.load(name)
        if found is None:
            raise RunError(
                f"there is no fit for {name!r}: auto goes by its rule there; fit one with --fit RUN …"
            )
        made, data["from"] = found[0], str(found[1])
    data["fit"] = {
        "device": made.device,
        "sms": made.sms,
        "prices": made.prices,
        "runs": list(made.runs),
        "records": made.records,
        "corrections": made.corrections,
    }
    for case in cases.cases("attention", args.case, {}) if args.case else []:
        values = attention_cases.validate(case)
        done = counts.counts_of_case(values, made.sms)
        times = made.microseconds(args.dtype, done)
        chosen = made.choose(args.dtype, done, times)
        data["predictions"].append(
            {"case": case, "dtype": args.dtype, "microseconds": times, "chosen": chosen}
        )
    out.answer(data, "" if out.json else _text(data))
    return 0


def _fit(runs: list[str], device: str | None):
    homes = (
        sorted((paths.profiles() / "recorded").glob("*-bench-*"))
        if runs == ["recorded"]
        else [_home(r) for r in runs]
    )
    records, used, names = [], [], set()
    for home in homes:
        about = folder.read(home)
        name = about.environment.get("device_name")
        found = folder.records(home) if about.kind == "bench" else []
        sms = about.environment.get("sms")
        if (device and name != device) or not sms or not fitting.measured(found, sms):
            continue
        names.add((name, sms))
        records += found
        used.append(about.id)
    if len(names) != 1:
        what = ", ".join(sorted(str(n) for n, _ in names)) or "no GPU at all"
        raise RunError(
            "a fit takes measurements of attention kernels on one GPU model; these runs have "
            f"{what} (--device-name picks one)"
        )
    name, sms = names.pop()
    rows = fitting.measured(records, sms)
    sources = {
        r.impl: r.source_hash
        for r in records
        if r.op == "attention" and r.source_hash and r.impl.startswith("v")
    }
    made = fitting.fit(name, sms, rows, used, sources)
    if before := cost_model.load(name):
        made = fitting.keeping(made, before[0])
    ratios = fitting.cross_validated(name, sms, rows)
    good = sum(r <= 1.05 for r in ratios)
    return made, {"cases": len(ratios), "within_5_percent": good / len(ratios), "worst": max(ratios)}


def _home(run: str):
    if (Path(run) / "run.json").is_file():
        return Path(run)
    from fusescope.store import library

    return library.find(run)


def _text(data: dict) -> str:
    made = data["fit"]
    lines = [
        f"{made['device']}: {made['records']} records of {len(made['runs'])} runs; "
        f"{data['saved'] or data['from']}"
    ]
    if scores := data["held_out"]:
        lines.append(
            f"{scores['cases']} held-out cases: {scores['within_5_percent']:.0%} within 5 % of the best, "
            f"worst {scores['worst']:.2f}×"
        )
    for p in data["predictions"]:
        first = next(iter(p["microseconds"]), None)
        said = "taken" if p["chosen"] == first else "taken: measured to be the fastest"
        rows = [
            [impl, time(us / 1e3), said if impl == p["chosen"] else ""]
            for impl, us in p["microseconds"].items()
        ]
        case = ", ".join(f"{k}={v}" for k, v in p["case"].items())
        lines += ["", case, table(["kernel", "predicted", ""], rows, "lrl")]
    return "\n".join(lines if data["predictions"] else [*lines, *_prices(made)])


def _prices(made: dict) -> list[str]:
    """The prices of the cost model, a table for each kind of case and of kernel."""
    lines = []
    for kind, prices in made["prices"].items():
        for features in (counts.FEATURES, counts.IN_PARTS):
            mine = {impl: values for impl, values in prices.items() if counts.features_of(impl) == features}
            rows = [[impl, *(three(p) for p in values)] for impl, values in mine.items()]
            if rows:
                head = ["kernel", *features]
                lines += ["", f"prices in µs ({kind})", table(head, rows, "l" + "r" * len(features))]
    return lines
