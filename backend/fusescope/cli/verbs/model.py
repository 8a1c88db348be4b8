"""``model``: compare the execution modes of a whole model, as the job behind the Models page does."""

from __future__ import annotations

import argparse

from fusescope import models
from fusescope.charts.numbers import plural
from fusescope.cli import case_options
from fusescope.cli import cases as _cases
from fusescope.cli.output import say, table
from fusescope.cli.tables import generation
from fusescope.cli.tables.records import show
from fusescope.core.discovery import meant
from fusescope.core.records import Record

HELP = "compare the execution modes of a whole model: correctness, speed, memory, time breakdown"


def arguments(parser, words) -> None:
    known = models.names()
    parser.add_argument(
        "op",
        metavar="NAME",
        type=_model,
        help=f"{', '.join(known)}; any other model of transformers by the path of its config.json or folder",
    )
    parser.add_argument(
        "--impl",
        action="append",
        metavar="A,B",
        help="execution modes, or all (default: those that need no compiler)",
    )
    parser.add_argument(
        "--checkpoint",
        metavar="DIR",
        help="a local folder with config.json and *.safetensors (default: random weights)",
    )
    parser.add_argument(
        "--accuracy",
        action="store_true",
        help="afterwards the error of every mode by module, as a run of its own",
    )
    parser.add_argument("--no-parts", action="store_true", help="do not time the parts of a layer")
    parser.add_argument("--baseline", default="eager", help="what the speed-up is over (default eager)")
    case_options.add_sampling(
        parser,
        "most time for all modes on one case and mode (default 5)",
        cache="warm",
        deadline="most time for one mode on one case, compiling included (default 300); what takes longer is "
        "recorded as timed out",
    )
    case_options.add_certainty(parser)
    case_options.add_cluster(parser)
    case_options.add(parser, words, whole_models=True)


def _model(word: str) -> str:
    """A model's name, or the whole path of its config.json."""
    if models.is_path(word):
        try:
            return models.resolved(word)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
    if word not in models.names():
        hint = meant(word, models.names())
        raise argparse.ArgumentTypeError(f"{word!r} is no model here, nor the path of a config.json ({hint})")
    return word


def run(args, out) -> int:
    from fusescope.cli.follow import done, follow, submitted
    from fusescope.jobs import submit
    from fusescope.store import folder, library

    spec = submit.validate("model", specify(args))
    run_id = submitted("model", spec, args.title)
    modes, cases = plural(len(spec["impls"]), "execution mode"), plural(len(spec["cases"]), "case")
    say(f"{run_id}: {modes} of {models.title(args.op)} on {cases}")
    ended = follow(run_id)
    records = folder.records(library.find(run_id))
    accuracy = _accuracy(args, spec, records) if args.accuracy and ended.status == "done" else None
    data = {
        "run": run_id,
        "baseline": spec["baseline"],
        "records": [r.to_json() for r in records],
        "accuracy": accuracy,
    }
    accuracy_text = _accuracy_text(accuracy["run"]) if accuracy and accuracy["status"] == "done" else ""
    text = "\n\n".join(
        filter(
            None,
            [
                show(records, spec["baseline"], ended.environment),
                _memory(records),
                generation.table_of(records),
                _parts(records),
                accuracy_text,
            ],
        )
    )
    runs = f"run {run_id}" + (
        f"\naccuracy by module: run {accuracy['run']}, {accuracy['status']}" if accuracy else ""
    )
    out.answer(data, f"{text}\n\n{runs}")
    if not done(ended):
        return 1
    peers = {w.name for w in models.modes(args.op, spec["device"]) if w.kind == "peer"}
    bad = [r for r in records if r.status in ("wrong", "crashed", "error") and r.impl not in peers]
    for r in bad:
        say(f"error: {r.impl} {r.status}: {r.reason}")
    return 1 if bad or (accuracy and accuracy["status"] != "done") else 0


def specify(args) -> dict:
    """The job that the arguments ask for; ValueError for what the model, the masks or this machine do not
    have."""
    device, _ = case_options.device(args)
    axes = {}
    for p in models.parameters(args.op):
        texts = getattr(args, f"axis_{p.name}") or ()
        # The settings of lengths are separated by commas, too, and split as those of a mask are.
        if found := [
            v
            for text in texts
            for v in (_cases.split_masks(text) if p.kind == "text" else _cases.axis(p, text))
        ]:
            axes[p.name] = found
    kind = case_options.dtype(args, device)

    def validate(case: dict) -> dict:
        whole = models.validate(args.op, case, args.checkpoint)
        fewer = models.reduced(args.op, whole, kind, device, args.checkpoint)
        if fewer is None or case.get("layers") is not None:
            return whole
        say(fewer[1])
        return fewer[0]

    cases = _cases.crossed(models.parameters(args.op), validate, args.case, axes)
    limits = (("budget_s", args.budget), ("case_deadline_s", args.deadline), ("seed", args.seed))
    further = {k: v for k, v in limits if v is not None} | case_options.certainty(args)
    return {
        "op": models.op(args.op),
        "impls": _modes(args, device),
        "cases": cases,
        "baseline": args.baseline,
        "dtype": kind,
        "device": device,
        "cache": args.cache,
        "checkpoint": args.checkpoint,
        "parts": not args.no_parts,
        "cluster": args.cluster,
        **further,
    }


def _modes(args, device: str) -> list[str]:
    listed = models.modes(args.op, device)
    if args.impl is None:
        asked = ("compile", "flex", "flash", "fused-")  # only by name: they compile, or are another model
        return [w.name for w in listed if w.reason is None and not w.name.startswith(asked)]
    found: dict[str, None] = {}
    for name in _cases.split_impls(args.impl):
        found |= (
            dict.fromkeys(w.name for w in listed if w.reason is None)
            if name == "all"
            else {models.mode(args.op, name, device).name: None}
        )
    return list(found)


def _accuracy(args, spec: dict, records: list[Record]) -> dict:
    """The job ``accuracy`` on the first case, with every mode that ran, in this dtype."""
    from fusescope.cli.follow import follow, submitted

    ran = dict.fromkeys(r.impl for r in records if r.status in ("ok", "wrong"))
    ran_alone = [w for w in ran if not w.startswith("compile") and not w.endswith(("-graph", "-trap"))]
    accuracy_spec = {
        "model": args.op,
        "case": spec["cases"][0],
        "entries": [[w, spec["dtype"]] for w in ran_alone],
        "device": spec["device"],
    }
    accuracy_spec |= {"checkpoint": spec["checkpoint"], "seed": spec["seed"]}
    run_id = submitted("accuracy", accuracy_spec, args.title)
    ended = follow(run_id)
    return {"run": run_id, "status": ended.status, "reason": ended.reason}


def _accuracy_text(run_id: str) -> str:
    """What the accuracy run found, a line per mode: the error of the output over its size, and where it first
    exceeds what is acceptable."""
    from fusescope.analysis.accuracy.depth import first_divergence
    from fusescope.charts.numbers import NA, three
    from fusescope.store import library, tables

    body = []
    for e in tables.read(library.find(run_id), "accuracy")["entries"]:
        if e["reason"]:
            body.append([e["way"], NA, "not checked", e["reason"]])
            continue
        error, first = e["rows"][-1]["relative_l2"], first_divergence(e["rows"])
        verdict = (
            ["within its limit everywhere", ""]
            if first is None
            else ["exceeds its limit", f"from {e['rows'][first]['name']} on"]
        )
        body.append([e["way"], "infinite" if error is None else three(error), *verdict])
    return table(["accuracy against float64", "error", "verdict", ""], body, "lrll")


def _memory(records: list[Record]) -> str:
    """Throughput, memory and the attention that ran, a line per record."""
    from fusescope.charts.models import memory
    from fusescope.charts.numbers import NA, percent, three

    body = []
    for r in records:
        if r.extra is None:
            continue
        rate = r.extra["throughput"]
        each, word = (
            (rate["images_per_s"], "images/s") if rate["images_per_s"] else (rate["tokens_per_s"], "tokens/s")
        )
        tail = r.extra["percentiles_ms"][r.main]
        peak = memory.figures(r, memory.several(records))[0]["peak_bytes"]
        body.append(
            [
                r.impl,
                f"{three(each)} {word}",
                *(three(tail[p]) for p in ("p50", "p90", "p99")),
                three(r.time_ms.first),
                three(peak / 2**20) if peak else NA,
                percent(r.extra["share_of_peak"]),
                r.backend or NA,
            ]
        )
    head = [
        "mode",
        "throughput",
        "p50 ms",
        "p90 ms",
        "p99 ms",
        "first ms",
        "peak MiB",
        "% of peak",
        "attention that ran",
    ]
    return table(head, body, "lrrrrrrrl") if body else ""


def _parts(records: list[Record]) -> str:
    """Shares of a profiled pass by layer part, of a model by its config.json by module: a line each."""
    from fusescope.charts.numbers import NA, percent

    looked = [r for r in records if r.extra and r.extra.get("parts")]
    names = list(dict.fromkeys(p for r in looked for p in r.extra["parts"]))
    if set(names) - set(models.PARTS):
        shares = [[r.extra["parts"].get(p) for r in looked] for p in names]
        body = [[p, *(percent(x["share"]) if x else NA for x in row)] for p, row in zip(names, shares)]
        return table(["time by module", *(r.impl for r in looked)], body, "l" + "r" * len(looked))
    body = [[r.impl, *(percent(r.extra["parts"][p]["share"]) for p in models.PARTS)] for r in looked]
    return table(["time breakdown", *models.PARTS], body, "l" + "r" * len(models.PARTS)) if body else ""
