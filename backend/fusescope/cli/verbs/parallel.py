"""``parallel``: a model over several devices, as the job behind the Scaling page measures it."""

from __future__ import annotations

from functools import partial

from fusescope import models
from fusescope.analysis.scaling import measured
from fusescope.charts.numbers import plural
from fusescope.cli import case_options
from fusescope.cli import cases as _cases
from fusescope.cli.numbers import integer
from fusescope.cli.output import say, table
from fusescope.cli.tables.records import show
from fusescope.core.machine import environment
from fusescope.models.describe import layouts

HELP = "a model over several devices: tensor, pipeline and data parallel, checked, timed, laws fitted"


def arguments(parser, words) -> None:
    known = [n for n in models.names() if hasattr(models.family(n), "PARALLEL")]
    parser.add_argument("op", metavar="NAME", choices=known, help=", ".join(known))
    parser.add_argument(
        "--layout",
        action="append",
        metavar="A,B",
        help="such as tp2, pp4 or tp2.pp2.dp2 (default: tp, pp and dp over 2, 4, … of the devices here)",
    )
    parser.add_argument(
        "--attention",
        default="sdpa",
        metavar="A,B",
        help=f"of {', '.join(layouts.ATTENTIONS)} (our encoder, BERT alone); default sdpa",
    )
    parser.add_argument(
        "--micro-batches", type=integer(1, 1024), default=4, help="pieces of a pipeline's batch (default 4)"
    )
    parser.add_argument("--weak", action="store_true", help="also with a batch that grows with the devices")
    parser.add_argument("--no-links", action="store_true", help="do not measure the collectives")
    parser.add_argument("--no-probes", action="store_true", help="do not time a rank's share on one device")
    parser.add_argument(
        "--trace",
        metavar="LAYOUT",
        help="also trace some calls of this layout on every rank: one profile (fusescope ranks RUN)",
    )
    case_options.add_sampling(
        parser,
        "time for each implementation on one case (default 5)",
        deadline="most time for one of them (default 300)",
    )
    case_options.add(parser, words, whole_models=True)


def run(args, out) -> int:
    from fusescope.cli.follow import done, follow, submitted
    from fusescope.jobs import submit
    from fusescope.store import folder, library

    spec = submit.validate("parallel", specify(args))
    run_id = submitted("parallel", spec, args.title)
    count, cases = plural(len(spec["impls"]), "layout"), plural(len(spec["cases"]), "case")
    say(f"{run_id}: {count} of {args.op} on {cases}")
    ended = follow(run_id)
    records = folder.records(library.find(run_id))
    series = measured.series(records)
    data = {
        "run": run_id,
        "baseline": spec["baseline"],
        "records": [r.to_json() for r in records],
        "scaling": [_series(s) for s in series],
        "links": ended.environment.get("links"),
        "probes": ended.environment.get("probes"),
    }
    parts = (show(records, spec["baseline"], {}), _ranks(records), _laws(series), _links(data["links"]))
    out.answer(data, "\n\n".join(filter(None, parts)) + f"\n\nrun {run_id}")
    if not done(ended):
        return 1
    bad = [r for r in records if r.status in ("wrong", "crashed", "error", "timeout")]
    for r in bad:
        say(f"error: {r.impl} {r.status}: {r.reason}")
    return 1 if bad else 0


def specify(args) -> dict:
    """The job that the arguments ask for; ValueError for what the model or this machine does not have."""
    device, _ = case_options.device(args)
    parameters = models.parameters(args.op)
    axes = {p.name: v for p in parameters if (v := _values(args, p))}
    cases = _cases.crossed(parameters, partial(models.validate, args.op), args.case, axes)
    wanted = [layouts.parse(t) for text in args.layout or () for t in text.split(",") if t]
    wanted = wanted or _usual(args.op, cases[0], device, args.micro_batches)
    attentions = [a for a in args.attention.split(",") if a]
    limits = {"budget_s": args.budget, "case_deadline_s": args.deadline, "seed": args.seed}
    return {
        "op": models.op(args.op),
        "impls": layouts.crossed(attentions, wanted),
        "cases": cases,
        "baseline": attentions[0] if attentions else None,
        "dtype": case_options.dtype(args, device),
        "device": device,
        "micro_batches": args.micro_batches,
        "weak": args.weak,
        "links": not args.no_links,
        "probes": not args.no_probes,
        "trace": _traced(args, attentions),
    } | {k: v for k, v in limits.items() if v is not None}


def _traced(args, attentions: list[str]) -> str | None:
    """The implementation whose layout --trace names: of the first attention, where it names none."""
    if args.trace is None or args.trace.partition("-")[0] in layouts.ATTENTIONS or not attentions:
        return args.trace
    return f"{attentions[0]}-{args.trace}"


def _values(args, p) -> list[str]:
    texts = getattr(args, f"axis_{p.name}") or ()
    return [
        v for text in texts for v in (_cases.split_masks(text) if p.kind == "text" else _cases.axis(p, text))
    ]


def _usual(name: str, case: dict, device: str, micro_batches: int) -> list[layouts.Layout]:
    """Each scheme alone over 2, 4, … of the devices that are here; on the CPU over 2."""
    gpus = sum(d.startswith("cuda") for d in environment.devices()) if device != "cpu" else 2
    found = []
    for word in ("tp", "pp", "dp"):
        n = 2
        while n <= gpus:
            layout = layouts.Layout(**{word: n})
            try:
                layouts.check(name, case, layout, micro_batches)
                found.append(layout)
            except ValueError as e:
                say(f"{layout} is left out: {e}")
            n *= 2
    return found


def _series(s: measured.Series) -> dict:
    return {
        "attention": s.attention,
        "scheme": s.scheme,
        "scaling": s.scaling,
        "case": dict(s.case),
        "speedups": [
            {"ranks": n, "ms": r.ms, "speedup": v} for (n, r), (_, v) in zip(s.points, s.speedups())
        ],
        "fit": s.fit().to_json(),
    }


def _ranks(records) -> str:
    """Memory and communication, a line per layout."""
    from fusescope.charts.numbers import NA, percent, three

    body = []
    for r in records:
        own = (r.extra or {}).get("parallel")
        if not own:
            continue
        sent, peak = own["communication"], max((p for p in own["peak_bytes"] if p), default=None)
        body.append(
            [
                r.impl,
                own["scaling"],
                str(r.case["batch"]),
                three(r.extra["throughput"]["tokens_per_s"]),
                three(max(own["weights_bytes"]) / 2**20),
                three(peak / 2**20) if peak else NA,
                percent(sent["share"]),
                percent(sent["hidden"]) if sent["hidden"] is not None else NA,
            ]
        )
    head = [
        "layout",
        "scaling",
        "batch",
        "tokens/s",
        "weights MiB",
        "peak MiB",
        "communication",
        "of it hidden",
    ]
    return table(head, body, "llrrrrrr") if body else ""


def _laws(series: list[measured.Series]) -> str:
    from fusescope.charts.numbers import NA, percent, three

    body = []
    for s in series:
        fit = s.fit()
        body.append(
            [
                f"{s.attention} {s.scheme}",
                "Gustafson" if fit.law == "gustafson" else "Amdahl",
                percent(fit.serial),
                f"{percent(fit.low)} – {percent(fit.high)}" if fit.low is not None else NA,
                ", ".join(f"{p.ranks}: {three(round(p.residual, 9) + 0.0)}" for p in fit.points),
            ]
        )
    head = ["scheme", "law", "serial share", "95 % interval", "residuals (speed-up)"]
    notes = dict.fromkeys(note for s in series if (note := s.fit().note))
    return "\n".join([table(head, body, "llrrl"), *notes]) if body else ""


def _links(found: dict | None) -> str:
    from fusescope.charts.numbers import three

    if not found:
        return ""
    body = [
        [
            link["collective"].replace("_", "-"),
            three(link["call_s"] * 1e6),
            three(link["alpha_s"] * 1e6),
            three(link["beta_bytes_per_s"] / 1e9),
            f"{100 * link['worst']:.0f} %",
        ]
        for link in found["links"]
    ]
    title = f"{found['backend']}, {found['ranks']} ranks"
    return table([title, "µs per call", "µs per step", "GB/s", "worst error of the fit"], body, "lrrrr")
