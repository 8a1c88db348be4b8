"""What each kernel's launch allows: grid, block, theoretical and grid-limited occupancy with the limiter.

Kineto's "est. achieved occupancy %" is kept as ``reported_occupancy`` and used for nothing: it is 0 for every
kernel with more than 48 KiB of shared memory, and no measurement where it is not. Measured occupancy comes
from Nsight Compute alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fusescope.analysis import occupancy
from fusescope.profiling.table import ABSENT, Coded, Texts, same

_MOST_NOTES = 6


def devices(metadata: dict) -> list[dict]:
    """The GPUs of a torch trace: {"id", "name", "cc" ("9.0" or None where it is no NVIDIA GPU), "sms"}."""
    found = metadata.get("deviceProperties")
    return [_device(d) for d in found if isinstance(d, dict)] if isinstance(found, list) else []


def _device(d: dict[str, Any]) -> dict:
    major, minor, name = d.get("computeMajor"), d.get("computeMinor"), str(d.get("name", ""))
    nvidia = (
        d.get("warpSize", 32) == 32
        and "AMD" not in name
        and isinstance(major, int)
        and isinstance(minor, int)
    )
    sms = d.get("numSms")
    return {
        "id": d.get("id") if isinstance(d.get("id"), int) else None,
        "name": name or None,
        "cc": f"{major}.{minor}" if nvidia else None,
        "sms": sms if isinstance(sms, int) and not isinstance(sms, bool) and 0 < sms < 1 << 20 else None,
    }


def describe(kernels: dict, launches: dict, gpus: list[dict]) -> list[str]:
    """Add to the kernels: grid_x … block_z, threads, active_blocks, occupancy, grid_occupancy (0 … 1, NaN
    where unknown), limiter. Gives sentences on what could not be computed.

    An AMD trace has the facts of a launch next to the call; they are read from there.
    """
    for name in ("grid", "block"):
        _from_launch(kernels, launches, name)
        for axis, letter in enumerate("xyz"):
            kernels[f"{name}_{letter}"] = kernels[name][:, axis]
    _from_launch(kernels, launches, "shared_bytes")
    there = (kernels["grid"] != ABSENT).all(axis=1) & (kernels["block"] != ABSENT).all(axis=1)
    kernels["threads"] = np.where(there, np.where(there[:, None], kernels["block"], 0).prod(axis=1), ABSENT)
    # in float64: a hostile grid may have more blocks than an int64 holds
    blocks = np.where(there[:, None], kernels["grid"], 0).astype(np.float64).prod(axis=1)

    count = len(there)
    notes: list[str] = []
    wanted = there & (kernels["registers"] != ABSENT) & (kernels["shared_bytes"] != ABSENT)
    rows = np.flatnonzero(wanted)
    launch = [kernels[c][rows] for c in ("device", "threads", "registers", "shared_bytes")]
    _, first, which = np.unique(same(launch), return_index=True, return_inverse=True)
    which = which.reshape(-1)
    gpu_of = {d["id"]: d for d in gpus}
    # one row per distinct launch and one more, the last, for kernels whose launch is not known
    kinds = len(first) + 1
    active, (theoretical, per_block, sms) = np.full(kinds, ABSENT, np.int64), np.full((3, kinds), np.nan)
    limiter, limiters = np.full(kinds, -1, np.int32), Texts()
    for n, (device, threads, registers, shared) in enumerate(np.column_stack(launch)[first].tolist()):
        gpu = gpu_of.get(device)
        found = _occupancy(gpu, threads, registers, shared, notes)
        if found is None:
            continue
        active[n], theoretical[n], limiter[n] = found.active_blocks, found.occupancy, limiters[found.limiter]
        per_block[n] = -(-threads // 32) / occupancy.LIMITS[occupancy.capability(gpu["cc"])].warps
        sms[n] = gpu["sms"] or np.nan
    kind = np.full(count, kinds - 1)
    kind[rows] = which
    if count and not wanted.any():
        notes.append("no kernel carries registers, block and shared memory, so occupancy is not known")
    resident = np.minimum(np.where(active[kind] == ABSENT, np.nan, active[kind]), blocks / sms[kind])
    kernels |= {
        "active_blocks": active[kind],
        "occupancy": theoretical[kind],
        "grid_occupancy": resident * per_block[kind],
        "limiter": Coded(limiter[kind], limiters.values()),
    }
    notes = list(dict.fromkeys(notes))
    return notes[:_MOST_NOTES] + (
        [f"and {len(notes) - _MOST_NOTES:,} more of the kind"] if len(notes) > _MOST_NOTES else []
    )


def _occupancy(gpu: dict | None, threads: int, registers: int, shared: int, notes: list[str]):
    if gpu is None or gpu["cc"] is None:
        what = f"{gpu['name']} is no NVIDIA GPU" if gpu else "the file does not say which GPU it is from"
        notes.append(f"occupancy is not known: {what}")
        return None
    try:
        return occupancy.theoretical(gpu["cc"], threads, registers, 0, shared)
    except ValueError as error:
        notes.append(
            str(error) if "known for" in str(error) else f"a kernel's launch makes no sense: {error}"
        )
        return None


def _from_launch(kernels: dict, launches: dict, name: str) -> None:
    lacks = kernels[name] == ABSENT
    lacks = (lacks.any(axis=1) if lacks.ndim == 2 else lacks) & (kernels["launch"] >= 0)
    if lacks.any():
        kernels[name][lacks] = launches[name][kernels["launch"][lacks]]
