"""Theoretical occupancy of a launch: how many blocks of it one SM holds at a time, and what limits that.

The arithmetic is that of NVIDIA's cuda_occupancy.h (compared over 21,000 launches on seven compute
capabilities). Thread-block clusters, named barriers and a custom shared-memory carve-out are not taken into
account. High occupancy hides latency better; it alone does not mean fast.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fusescope.core.schema import check_int

REGISTERS_PER_SM = 65536
REGISTER_UNIT = 256  # registers are allocated to a warp in units of this many
PARTITIONS = 4  # of an SM; each has its share of the registers
DEFAULT_SHARED = 49152  # bytes a block may have without opting in
MAX_THREADS, MAX_REGISTERS = 1024, 255  # a block, a thread


@dataclass(frozen=True)
class Limits:
    """What one SM holds; shared memory in bytes. ``opt_in``: most a block may ask for; ``reserved``: the
    system's part a block."""

    warps: int
    blocks: int
    shared: int
    opt_in: int
    unit: int
    reserved: int


_SM89 = Limits(48, 24, 102400, 101376, 128, 1024)
_SM90 = Limits(64, 32, 233472, 232448, 128, 1024)
LIMITS: Mapping[tuple[int, int], Limits] = {
    (7, 5): Limits(32, 16, 65536, 65536, 256, 0),
    (8, 0): Limits(64, 32, 167936, 166912, 128, 1024),
    (8, 6): Limits(48, 16, 102400, 101376, 128, 1024),
    (8, 9): _SM89,
    (9, 0): _SM90,
    (10, 0): _SM90,
    (12, 0): _SM89,
}
"""By compute capability; the figures are those of the CUDA programming guide's table of technical
specifications."""

LIMITERS = ("warps", "registers", "shared memory", "blocks")


@dataclass(frozen=True)
class Occupancy:
    """Blocks and warps resident on one SM, occupancy 0 … 1, and the limiter: one of LIMITERS or
    "unlaunchable".

    ``by``: blocks that each limiter alone would allow, None where it does not limit; ``reason``: the limit in
    words.
    """

    active_blocks: int
    active_warps: int
    occupancy: float
    limiter: str
    by: Mapping[str, int | None]
    reason: str


def theoretical(cc, block: int, registers: int, static_smem: int = 0, dynamic_smem: int = 0) -> Occupancy:
    """Occupancy of blocks of ``block`` threads with ``registers`` a thread and so many bytes of shared
    memory, on one SM.

    cc: (9, 0) or "9.0". A launch that the device refuses gives 0 and "unlaunchable". Raises ValueError for a
    compute capability that is not in LIMITS and for numbers that are not whole, below 1 (block) or below 0.
    """
    limits = LIMITS[capability(cc)]
    block = check_int("block", block, 1)
    registers = check_int("registers", registers, 0)
    static_smem, dynamic_smem = (
        check_int("static_smem", static_smem, 0),
        check_int("dynamic_smem", dynamic_smem, 0),
    )

    warps = -(-block // 32)
    by: dict[str, int | None] = dict.fromkeys(LIMITERS)
    by["warps"] = limits.warps // warps
    if registers:
        per_warp = _round_up(registers * 32, REGISTER_UNIT)
        fits = per_warp * _round_up(warps, PARTITIONS) <= REGISTERS_PER_SM
        by["registers"] = (REGISTERS_PER_SM // PARTITIONS // per_warp) * PARTITIONS // warps if fits else 0
    used = static_smem + dynamic_smem + limits.reserved
    allocated = _round_up(used, limits.unit)
    most = (limits.opt_in if used > DEFAULT_SHARED else DEFAULT_SHARED) + limits.reserved
    if allocated:
        by["shared memory"] = limits.shared // allocated if allocated <= most else 0
    by["blocks"] = limits.blocks

    active = min(count for count in by.values() if count is not None)
    refused = _refused(block, registers, static_smem + dynamic_smem, limits, by)
    if refused:
        return Occupancy(0, 0, 0.0, "unlaunchable", by, refused)
    limiter = next(name for name in LIMITERS if by[name] == active)
    verb = "allows" if limiter == "shared memory" else "allow"
    reason = f"{limiter} {verb} {active} block{'s' if active > 1 else ''} on an SM"
    return Occupancy(active, active * warps, active * warps / limits.warps, limiter, by, reason)


def capability(cc) -> tuple[int, int]:
    """(9, 0) from (9, 0), [9, 0] or "9.0"; ValueError lists what is supported."""
    try:
        major, minor = cc.split(".") if isinstance(cc, str) else cc
        key = int(major), int(minor)
    except (TypeError, ValueError):
        key = None
    if key not in LIMITS:
        known = ", ".join(f"{a}.{b}" for a, b in sorted(LIMITS))
        raise ValueError(f"occupancy is known for compute capability {known}, not {cc!r}")
    return key


def _refused(block: int, registers: int, shared: int, limits: Limits, by: Mapping) -> str | None:
    if block > MAX_THREADS:
        return f"a block has at most {MAX_THREADS} threads, not {block}"
    if registers > MAX_REGISTERS:
        return f"a thread has at most {MAX_REGISTERS} registers, not {registers}"
    if by["registers"] == 0:
        return f"{block} threads of {registers} registers exceed the {REGISTERS_PER_SM} registers of an SM"
    if by["shared memory"] == 0:
        return f"{shared} bytes of shared memory exceed the {limits.opt_in} that a block may have"
    return None


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
