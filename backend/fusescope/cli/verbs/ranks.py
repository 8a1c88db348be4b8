"""``ranks``: a profile of many ranks: time by rank, stragglers, collectives, kernels compared, critical
path."""

from __future__ import annotations

from fusescope.cli.numbers import integer
from fusescope.cli.output import table
from fusescope.cli.tables.profile_text import plain

HELP = "traces of many ranks: time by rank, stragglers, collectives, kernels compared, critical path"
VIEWS = ("time", "collectives", "kernels", "idle", "path")


def arguments(parser, words) -> None:
    parser.add_argument("run", help="a run that import made of a folder of traces")
    parser.add_argument("--view", choices=VIEWS, default="time")
    parser.add_argument("--pair", metavar="A,B", help="kernels of rank B against those of rank A")
    parser.add_argument("--limit", type=integer(1), default=20, help="rows shown without --json")


def run(args, out) -> int:
    from fusescope.analysis.ranks import compared, straggler
    from fusescope.core.errors import RunError
    from fusescope.store import library, profile

    path = library.find(args.run)
    summary = profile.summary(path) or {}
    if not summary.get("ranks"):
        raise RunError(f"{path.name} is no profile of many ranks: import a folder with a trace per rank")
    rows = {
        name: profile.rows(path, name)
        for name in ("rank_time", "rank_idle", "collectives", "collective_ranks", "rank_kernels")
    }
    numbers = [t["rank"] for t in rows["rank_time"]]
    two = _two(args.pair, numbers)
    data = {
        "run": path.name,
        "on_device": summary["on_device"],
        "sentence": straggler.sentence(rows["rank_time"], rows["collectives"]),
        "clocks": summary["clocks"],
        "ranks": rows["rank_time"],
        "idle": rows["rank_idle"],
        "collectives": compared.kinds(rows["collectives"], rows["collective_ranks"]),
        "kernels": compared.kernels(rows["rank_kernels"], numbers),
        "critical_path": summary["critical_path"],
        "notes": summary["notes"],
    }
    if two:
        of = compared.pair(rows["rank_kernels"], *two)
        data["pair"] = {"first": two[0], "second": two[1], "kernels": of}
    out.answer(data, _words(data, "pair" if two else args.view, args.limit))
    return 0


def _two(text: str | None, numbers: list[int]) -> tuple[int, int] | None:
    """The two ranks that --pair names; ValueError: what it takes."""
    if text is None:
        return None
    parts = text.split(",")
    if len(parts) != 2 or not all(p.isdecimal() and int(p) in numbers for p in parts) or parts[0] == parts[1]:
        few = ", ".join(map(str, numbers[:16])) + (" …" if len(numbers) > 16 else "")
        raise ValueError(f"--pair takes two of the ranks {few}, such as 0,1, not {text!r}")
    return int(parts[0]), int(parts[1])


def _words(data: dict, view: str, limit: int) -> str:
    head, rows, align = _TABLES[view](data)
    lines = [data["sentence"], *_clocks(data["clocks"]), ""]
    lines.append(table(head, rows[:limit], align) if rows else "nothing to show")
    if len(rows) > limit:
        lines.append(f"… {len(rows) - limit} more (--limit)")
    return "\n".join([*lines, *(f"! {plain(note)}" for note in data["notes"])])


def _clocks(clocks: list[dict]) -> list[str]:
    from fusescope.charts.ranks.words import clock

    return [clock(c) for c in clocks[1:]]


def _time(data: dict):
    from fusescope.charts.numbers import percent

    rows = [
        [
            str(t["rank"]),
            _ms(t["span_ns"]),
            *(percent(t[p] / t["span_ns"] if t["span_ns"] else None) for p in _PARTS),
            f"{t['last']:,} of {t['collectives']:,}",
            _ms(t["held_up_ns"]),
            _ms(t["wait_ns"]),
        ]
        for t in data["ranks"]
    ]
    head = ["rank", "span ms", "compute", "overlapped", "exposed comm.", "memcpy/memset", "idle"]
    return [*head, "came last", "held up ms", "waited ms"], rows, "rrrrrrrrrr"


_PARTS = ("compute_ns", "overlapped_ns", "exposed_ns", "memory_ns", "idle_ns")


def _collectives(data: dict):
    from fusescope.charts.numbers import NA, percent, three

    rows = [
        [
            plain(c["name"]),
            f"{c['collectives']:,}",
            _ms(c["total_ns"]),
            _ms(c["exposed_ns"]),
            percent(c["overlap"]),
            *(
                NA if c[k] is None else three(c[k] / 1e3)
                for k in ("median_skew_ns", "max_skew_ns", "transfer_ns")
            ),
        ]
        for c in data["collectives"]
    ]
    head = ["collective", "count", "total ms", "exposed ms", "overlap"]
    return [*head, "median skew µs", "max skew µs", "transfer µs"], rows, "lrrrrrrr"


def _kernels(data: dict):
    from fusescope.charts.numbers import NA, three

    rows = [
        [
            plain(k["name"])[:60],
            k["kind"],
            str(k["slowest"]),
            _ms(k["max_ns"]),
            _ms(k["median_ns"]),
            NA if k["ratio"] is None else f"{three(k['ratio'])}×",
            f"{k['calls_min']:,}" + (f" to {k['calls_max']:,}" if k["calls_max"] > k["calls_min"] else ""),
        ]
        for k in data["kernels"]
    ]
    return ["kernel", "kind", "slowest rank", "there ms", "median ms", "ratio", "calls"], rows, "llrrrrr"


def _pair(data: dict):
    from fusescope.charts.numbers import NA, three

    of = data["pair"]
    rows = [
        [
            plain(k["name"])[:60],
            k["kind"],
            *(_ms(k[key]) if k[calls] else NA for key, calls in _BOTH),
            _ms(k["difference_ns"]),
            NA if k["ratio"] is None or not k["second_calls"] else f"{three(k['ratio'])}×",
            f"{k['first_calls']:,} / {k['second_calls']:,}",
        ]
        for k in of["kernels"]
    ]
    head = ["kernel", "kind", *(f"rank {of[w]} ms" for w in ("first", "second")), "difference ms", "ratio"]
    return [*head, "calls"], rows, "llrrrrr"


_BOTH = (("first_ns", "first_calls"), ("second_ns", "second_calls"))


def _idle(data: dict):
    rows = [
        [str(i["rank"]), str(i["device"]), str(i["stream"])]
        + [_ms(i[k]) for k in ("host_wait_ns", "kernel_wait_ns", "other_ns")]
        for i in data["idle"]
    ]
    return ["rank", "device", "stream", "host wait ms", "kernel wait ms", "other ms"], rows, "rrrrrr"


def _path(data: dict):
    from fusescope.charts.numbers import percent

    rows = [[str(p["rank"]), p["kind"], _ms(p["ns"]), percent(p["share"])] for p in data["critical_path"]]
    return ["rank", "kind", "ms", "share of the path"], rows, "rlrr"


def _ms(ns: float) -> str:
    from fusescope.charts.numbers import three

    return three(ns / 1e6)


_TABLES = {
    "time": _time,
    "collectives": _collectives,
    "kernels": _kernels,
    "idle": _idle,
    "path": _path,
    "pair": _pair,
}
