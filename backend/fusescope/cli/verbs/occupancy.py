"""``occupancy``: blocks and warps resident on an SM, and what limits them."""

from __future__ import annotations

from fusescope.analysis.occupancy import LIMITERS, capability, theoretical
from fusescope.charts.numbers import percent
from fusescope.cli.numbers import integer

HELP = "theoretical occupancy of a launch, with the limiter named"


def arguments(parser, words) -> None:
    parser.add_argument("--cc", required=True, help="compute capability, such as 9.0")
    parser.add_argument("--block", required=True, type=integer(1), help="threads a block")
    parser.add_argument("--registers", required=True, type=integer(), help="registers per thread")
    parser.add_argument(
        "--static-smem", type=integer(), default=0, help="static shared memory a block, in bytes"
    )
    parser.add_argument(
        "--dynamic-smem", type=integer(), default=0, help="dynamic shared memory a block, in bytes"
    )


def run(args, out) -> int:
    found = theoretical(args.cc, args.block, args.registers, args.static_smem, args.dynamic_smem)
    data = {
        "cc": "{}.{}".format(*capability(args.cc)),
        "block": args.block,
        "registers": args.registers,
        "static_smem": args.static_smem,
        "dynamic_smem": args.dynamic_smem,
        "active_blocks": found.active_blocks,
        "active_warps": found.active_warps,
        "occupancy": found.occupancy,
        "limiter": found.limiter,
        "by": dict(found.by),
        "reason": found.reason,
    }
    limits = ", ".join(
        f"{name} {'no limit' if found.by[name] is None else found.by[name]}" for name in LIMITERS
    )
    text = (
        f"occupancy {percent(found.occupancy)}: {found.active_blocks} blocks, {found.active_warps} warps per "
        "SM\n"
        f"limiter   {found.limiter} ({found.reason})\n"
        f"blocks by {limits}\n"
        "Theoretical, without clusters or a shared-memory carve-out; high occupancy alone does not mean fast."
    )
    out.answer(data, text)
    return 0
