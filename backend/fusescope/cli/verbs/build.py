"""``build``: compile the kernels and show what the compiler says about each."""

from __future__ import annotations

from fusescope.charts.numbers import seconds
from fusescope.cli.output import say, table

HELP = "build kernels (all families or the named ones) and list resources per kernel and architecture"


def arguments(parser, words) -> None:
    parser.add_argument("family", nargs="*", metavar="FAMILY", help="folders of cuda/ (default: all)")
    parser.add_argument(
        "--arch",
        nargs="+",
        metavar="sm_90a",
        help="architectures of the CUDA kernels (default: of the GPUs present)",
    )
    parser.add_argument("--clean", action="store_true", help="forget what this toolchain built before")


def run(args, out) -> int:
    from fusescope.kernels.build import build

    archs = [name for word in args.arch for name in word.split(",") if name] if args.arch else None
    report = build(archs, args.clean, log=say, families=tuple(args.family) or None)
    data = report.to_json()
    for variant in data["variants"]:
        del variant["key"]
    out.answer(data, text(report))
    return 0 if report.ok else 1


def text(report) -> str:
    """A line per kernel function; failures and their causes below."""
    rows = []
    for v in report.variants:
        head = [v.family, v.variant, v.arch or v.device, v.status]
        if not v.resources:
            rows.append([*head, "", "", "", "", ""])
        for r in v.resources:
            rows.append([*head, str(r.registers), str(r.shared), str(r.spills), str(r.stack), _short(r.name)])
    header = ["family", "kernel", "for", "status", "registers", "shared B", "spills B", "stack B", "function"]
    made = (
        "nothing had to be built"
        if report.reused
        else f"{report.compiled} compiled in {seconds(report.seconds)}"
    )
    lines = [table(header, rows, "llllrrrrl"), "", f"{len(report.variants)} objects, {made}"]
    for v in report.failed:
        lines.append(f"✗ {v.family}/{v.variant} {v.arch or v.device}: {v.error}")
    for cause in report.causes:
        lines.append(f"cause: {cause['says']}\n  fix: {cause['fix']}")
    return "\n".join(lines)


def _short(name: str) -> str:
    """A demangled function without its parameters and anonymous namespaces."""
    name = name.replace("(anonymous namespace)::", "").removeprefix("void ")
    depth = 0
    for i, c in enumerate(name):
        depth += (c == "<") - (c == ">")
        if c == "(" and depth == 0:
            return name[:i]
    return name
