"""``profile``: why is it slow: a trace, Nsight Compute, Nsight Systems or the sanitizer over a case of an
operator or model; or two profiles compared."""

from __future__ import annotations

from fusescope import models, ops
from fusescope.cli import case_options, cases
from fusescope.cli.numbers import integer
from fusescope.cli.output import say, table
from fusescope.cli.tables import profile_text

HELP = "why is it slow: trace, Nsight Compute, Nsight Systems or sanitizer of one case; diff of two profiles"
TOOLS = {"torch": "trace", "ncu": "ncu", "nsys": "nsys", "sanitizer": "sanitize"}
_BY = ("kernel", "operator", "operator on the host", "module")


def arguments(parser, words) -> None:
    if words[:1] == ["diff"]:
        parser.add_argument("what", choices=["diff"])
        parser.add_argument("a", help="the run that is compared with")
        parser.add_argument("b", help="the run that is compared")
        parser.add_argument("--by", choices=_BY, default="kernel")
        parser.add_argument("--limit", type=integer(1), default=20, help="rows shown without --json")
        return
    known = [*ops.names(), *models.names()]
    parser.add_argument(
        "op",
        metavar="NAME",
        choices=known,
        help=f"an operator or a model: {', '.join(known)}; or diff RUN RUN",
    )
    parser.add_argument(
        "--impl",
        action="append",
        metavar="A,B",
        help="implementations, or execution modes of a model (default: the last of ours, sdpa); a run each",
    )
    parser.add_argument("--tool", choices=TOOLS, default="torch", help="default torch (torch.profiler)")
    parser.add_argument(
        "--memory", action="store_true", help="allocations in the trace, allocator peak and snapshot (torch)"
    )
    parser.add_argument(
        "--metrics",
        help="ncu: light, standard (default), detailed, full, or metric names separated by commas",
    )
    parser.add_argument(
        "--check", metavar="CHECK", help="sanitizer: memcheck (default), racecheck, initcheck, synccheck"
    )
    parser.add_argument("--active", type=integer(1), metavar="N", help="torch: profiled calls (default 5)")
    parser.add_argument(
        "--captured", metavar="RUN", help="torch: the eager trace of what replays a CUDA graph here"
    )
    case_options.add(parser, words, whole_models=True)


def run(args, out) -> int:
    if hasattr(args, "what"):
        return diff(args, out)
    from fusescope.jobs import submit

    kind = TOOLS[args.tool]
    specs = [
        submit.validate(kind, spec) for spec in specify(args)
    ]  # all are looked at before the first is run
    answers = [_one(kind, spec, args) for spec in specs]
    text = "\n\n".join(f"{a['run']}  {a['impl']}  {a['status']}\n{_words(a)}" for a in answers)
    out.answer({"tool": args.tool, "profiles": answers}, text)
    return 0 if all(a["status"] == "done" and not a["findings"] for a in answers) else 1


def specify(args) -> list[dict]:
    """One spec for each implementation and case; ValueError for what the operator, the tool or this machine
    do not have."""
    device, arch = case_options.device(args)
    for option, tool in (
        ("memory", "torch"),
        ("active", "torch"),
        ("captured", "torch"),
        ("metrics", "ncu"),
        ("check", "sanitizer"),
    ):
        if getattr(args, option) and args.tool != tool:
            raise ValueError(f"--{option} goes with --tool {tool}, not with {args.tool}")
    model = args.op in models.names()
    given = (
        cases.split_impls(args.impl) if args.impl else ["sdpa" if model else _default(args.op, device, arch)]
    )
    extra = {
        "memory": args.memory or None,
        "active": args.active,
        "metrics": args.metrics,
        "tool": args.check,
    }
    extra["captured"] = args.captured
    common = {
        "op": models.op(args.op) if model else args.op,
        "dtype": case_options.dtype(args, device),
        "device": device,
    }
    common |= {k: v for k, v in extra.items() if v is not None}
    if not model:
        names = [i.name for i in ops.chosen(args.op, given, device, arch)]
    else:
        names = (
            given if given != ["all"] else [i.name for i in models.modes(args.op, device) if i.reason is None]
        )
    return [common | {"impl": name, "case": case} for name in names for case in case_options.cases(args)]


def _default(op: str, device: str, arch: str | None) -> str:
    """The last of our ladder that runs on the device."""
    ours = [i for i in ops.implementations(op, device, arch) if i.kind == "ours" and i.reason is None]
    if not ours:
        raise ValueError(f"{op} has no implementation of ours that runs on {device}: name one with --impl")
    return ours[-1].name


def _one(kind: str, spec: dict, args) -> dict:
    from fusescope.cli.follow import done, follow, submitted
    from fusescope.store import folder, library, profile

    run_id = submitted(kind, spec, args.title)
    say(f"{run_id}: {args.tool} of {spec['op']} {spec['impl']} on {spec['device']}")
    ended = follow(run_id)
    path = library.find(run_id)
    done(ended)
    answer = {"run": run_id, "status": ended.status, "reason": ended.reason}
    answer |= {key: spec[key] for key in ("op", "impl", "case", "dtype", "device")}
    answer |= profile_text.found(path)
    answer |= {name: profile.facts(path, name) for name in ("telemetry", "memory")}
    answer["findings"] = [r.reason for r in folder.records(path) if r.status == "error"]
    return answer


def _words(answer: dict) -> str:
    lines = [profile_text.words(answer), *(f"✗ {f}" for f in answer["findings"])]
    memory = answer["memory"] or {}
    peaks = [
        f"{key.removesuffix('_peak_bytes')} {memory[key]:,} bytes"
        for key in memory
        if key.endswith("_peak_bytes") and memory[key]
    ]
    lines += (
        [f"peak memory: {', '.join(peaks)}" + (f" ({memory['note']})" if memory.get("note") else "")]
        if peaks
        else []
    )
    if telemetry := answer["telemetry"]:
        throttled = (
            f", throttled {telemetry['throttled']:.0%} of the time" if telemetry.get("throttled") else ""
        )
        lines.append(f"telemetry: {telemetry['count']} samples from {telemetry['source']}{throttled}")
    return "\n".join(line for line in lines if line)


def diff(args, out) -> int:
    """Two runs that hold profiles: whether they may be compared; faster, slower, new, gone."""
    from dataclasses import asdict

    from fusescope.analysis.compare import profiled
    from fusescope.analysis.profile import diff as profile_diff
    from fusescope.analysis.profile.metrics import step_ns
    from fusescope.charts.numbers import faster, three
    from fusescope.store import folder, library, profile

    paths = [library.find(run_id) for run_id in (args.a, args.b)]
    steps = [len(profile.rows(p, "steps")) if "steps" in profile.names(p) else 0 for p in paths]
    a_ns, b_ns = (step_ns(profile.summary(p) or {}, n) for p, n in zip(paths, steps, strict=True))
    answer = profiled.judge(*(folder.read(p) for p in paths), (steps[0], steps[1]))
    a_steps, b_steps = (max(1, n) for n in steps)
    name = profile_diff.BY[args.by][0]
    rows = profile_diff.diff(*(profile.rows(p, name) for p in paths), args.by, a_steps, b_steps)
    a, b = (p.name for p in paths)
    data = {"a": a, "b": b, "by": args.by, "a_steps": a_steps, "b_steps": b_steps}
    data["comparable"] = {
        "yes": answer.comparable,
        "text": answer.text,
        "cautions": list(answer.cautions),
    }
    speedup = a_ns / b_ns if a_ns and b_ns and answer.comparable else None
    data |= {"step": {"a_ns": a_ns, "b_ns": b_ns, "speedup": speedup}}
    data |= {"totals": profile_diff.totals(rows), "rows": [asdict(r) for r in rows]}
    columns = {
        args.by: lambda r: profile_text.plain(r.name)[:60],
        "state": lambda r: r.state,
        "a µs": lambda r: three(r.a_ns / 1000),
        "b µs": lambda r: three(r.b_ns / 1000),
        "b − a µs": lambda r: three(r.delta_ns / 1000),
        "b is": lambda r: faster(r.speedup),
    }
    if not answer.comparable:  # a change is neither faster nor slower
        del columns["state"], columns["b is"]
    shown = [[value(r) for value in columns.values()] for r in rows[: max(0, args.limit)]]
    lines = [f"a = {a} ({a_steps} steps)", f"b = {b} ({b_steps} steps)"]
    lines.append(f"may b be compared with a? {profile_text.plain(answer.text)}")
    lines += [f"cautions: {profile_text.plain('; '.join(answer.cautions))}"] * bool(answer.cautions)
    if a_ns and b_ns:
        step = f"{three(a_ns / 1e6)} → {three(b_ns / 1e6)} ms"
        lines.append(f"step on the device: {step}" + (f", b is {faster(speedup)}" if speedup else ""))
    right = "".join("l" if head in (args.by, "state") else "r" for head in columns)
    lines += ["", table(list(columns), shown, right) if rows else "nothing to compare"]
    lines += [f"… {len(rows) - len(shown)} more (--limit)"] if len(rows) > len(shown) else []
    out.answer(data, "\n".join([*lines, "profiled times per step; for latencies compare benchmarks"]))
    return 0
