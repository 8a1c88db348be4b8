"""``predict-scaling``: layouts of a model over 2 … 1,024 devices, from a run of ``parallel``."""

from __future__ import annotations

from fusescope import models
from fusescope.analysis.scaling import links
from fusescope.charts.numbers import percent, three, time
from fusescope.cli.numbers import integer, seconds
from fusescope.cli.output import table
from fusescope.models.describe import layouts, predicted

HELP = "time and memory of a model on 2 to 1,024 devices, predicted from a run of parallel"
_PIECES = (1, 2, 4, 8, 16, 32)


def arguments(parser, words) -> None:
    parser.add_argument(
        "run", metavar="RUN", help="a run of parallel: times of one device and of collectives"
    )
    parser.add_argument("--attention", choices=layouts.ATTENTIONS, help="default: the run's baseline")
    parser.add_argument("--batch", type=integer(1, 1 << 16), help="sequences in all (default: the run's)")
    parser.add_argument(
        "--devices", metavar="N,N", default=",".join(map(str, predicted.COUNTS)), help="default 2,4,…,1024"
    )
    parser.add_argument(
        "--memory-gib", type=seconds(), metavar="GIB", help="memory of a device (default: that of the run's)"
    )
    parser.add_argument("--latency-us", type=seconds(), help="of a link, instead of what the run measured")
    parser.add_argument(
        "--bandwidth-gbs", type=seconds(), help="of a link in GB/s, likewise; both or neither"
    )
    parser.add_argument(
        "--top", type=integer(1, 100), default=3, help="layouts per number of devices (default 3)"
    )


def run(args, out) -> int:
    from fusescope.store import folder, library

    path = library.find(args.run)
    found = folder.read(path)
    if found.kind != "parallel" or not found.spec.get("cases"):
        raise ValueError(f"{found.id} is a run of {found.kind}, not of parallel")
    name = models.named(found.spec["op"])
    case = dict(found.spec["cases"][0]) | ({"batch": args.batch} if args.batch else {})
    attention = args.attention or layouts.named(found.spec["baseline"])[0]
    base = predicted.basis(name, case, found.spec["dtype"], attention, found.environment, _given(args))
    memory = args.memory_gib * 2**30 if args.memory_gib else found.environment.get("memory_bytes")
    rows = [(n, base.best(n, _PIECES, memory)[: args.top]) for n in _counts(args.devices)]
    first = next((best[0] for _, best in reversed(rows) if best), None)
    helps = base.helps(first) if first else []
    single = base.compute.ms(1, case["batch"])
    data = {
        "run": found.id,
        "model": name,
        "case": case,
        "dtype": found.spec["dtype"],
        "attention": attention,
        "single_ms": single,
        "memory_bytes": memory,
        "links": [link.to_json() for link in base.links.values()],
        "compute_worst_error": base.compute.worst,
        "layouts": [p.to_json() | {"speedup": single / p.ms} for _, best in rows for p in best],
        "helps": [{"what": h.what, "ms": h.ms} for h in helps],
        "compared": [c.to_json() for c in predicted.compared(folder.records(path), found.environment)],
    }
    out.answer(data, _text(data, rows, first))
    return 0


def _given(args) -> dict | None:
    if (args.latency_us is None) != (args.bandwidth_gbs is None):
        raise ValueError("a link is given by --latency-us and --bandwidth-gbs together")
    if args.latency_us is None:
        return None
    return links.given(args.latency_us * 1e-6, args.bandwidth_gbs * 1e9)


def _counts(text: str) -> list[int]:
    try:
        found = [int(piece) for piece in text.split(",")]
    except ValueError:
        raise ValueError(f"--devices is a list of integers such as 2,4,8, not {text!r}") from None
    if not all(1 <= n <= layouts.MOST_RANKS for n in found):
        raise ValueError(f"--devices are 1 to {layouts.MOST_RANKS}, not {text!r}")
    return found


def _text(data: dict, rows, first) -> str:
    body = []
    for n, best in rows:
        if not best:
            body.append([str(n), "none fits", *[""] * 6])
        for p in best:
            layout = layouts.Layout(p.tp, p.pp, p.dp)
            body.append(
                [
                    str(n),
                    f"{layout}" + (f", {p.micro_batches} micro-batches" if p.pp > 1 else ""),
                    ("≥ " if p.host_bound else "") + time(p.ms),
                    ("≤ " if p.host_bound else "") + f"{three(data['single_ms'] / p.ms)}×",
                    percent(p.communication_ms / p.ms),
                    percent(p.bubble_ms / p.ms),
                    three(p.memory_bytes / 2**30),
                    ("measured" if p.measured else "fitted") + (", host-bound" if p.host_bound else ""),
                ]
            )
    head = ["devices", "layout", "time", "speed-up", "communication", "bubble", "GiB", "arithmetic"]
    text = [
        f"{data['model']} with {data['attention']}, one device {time(data['single_ms'])}",
        table(head, body, "rlrrrrrl"),
    ]
    lines = [f"  {h['what']}: {time(h['ms'])}" for h in data["helps"] if first and h["ms"] < 0.99 * first.ms]
    if lines:
        text.append(
            f"What would help {layouts.Layout(first.tp, first.pp, first.dp)} most ({time(first.ms)}):\n"
            + "\n".join(lines)
        )
    if data["compared"]:
        text.append(_compared(data["compared"]))
    return "\n\n".join(text)


def _compared(rows: list[dict]) -> str:
    body = [
        [
            row["impl"],
            row["scaling"],
            str(row["case"]["batch"]),
            time(row["measured_ms"]),
            ("≥ " if row["host_bound"] else "") + time(row["predicted_ms"]),
            "n/a: host-bound" if row["error"] is None else f"{100 * row['error']:+.1f} %",
        ]
        for row in rows
    ]
    head = ["layout", "scaling", "batch", "measured", "predicted", "off by"]
    return "What the run measured, and what is predicted for it:\n" + table(head, body, "llrrrr")
