"""Whether a model can fit on a device at all, from its sizes, before anything is allocated."""

from __future__ import annotations

import bisect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fusescope.core.machine import environment
from fusescope.models.describe import catalog, tree

_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
_REFERENCE_BYTES = 8  # float64, which every comparison is checked against
_GIB = 2.0**30
_SHARE = 0.75
_DRAWN_BYTES = 4  # weights are drawn in fp32 on the host, whatever the device and dtype
_RANK_BYTES = 272 << 20
"""A process with torch and transformers, what it shares with others aside (measured without CUDA)."""


def reduced(
    name: str, case: Mapping[str, Any], dtype: str, device: str, checkpoint: str | None = None
) -> tuple[dict[str, Any], str] | None:
    """Where ``device`` does not hold a complete case with all layers: the case with the most layers of which
    weights and float64 reference take up to three quarters of the room, and the sentence that says so. None
    where all fit, nothing is known of the room, or one layer does not fit either."""
    room, of_what = _room(device)
    each = _BYTES[dtype] + _REFERENCE_BYTES

    def needed(layers: int) -> int:
        return each * tree.total(name, {**case, "layers": layers}, checkpoint)

    whole = case["layers"]
    if checkpoint is not None or room is None or needed(whole) <= room:
        return None
    fitting = bisect.bisect_right(range(1, whole), _SHARE * room, key=needed)
    if not fitting:
        return None
    words = (
        f"{catalog.title(name)} is reduced to {fitting} of its {whole} layers: all take "
        f"{needed(whole) / _GIB:.3g} GiB in {dtype} and in the float64 reference; {of_what}"
    )
    return {**case, "layers": fitting}, words


def check(name: str, case: Mapping[str, Any], dtype: str, device: str, checkpoint: str | None = None) -> None:
    """ValueError with the sizes where the weights of a model in ``dtype`` and in float64, which are there at
    once while the reference is made, do not fit into the memory of ``device``.

    A lower bound: activations, caches and graphs come on top. A GPU counts with all its memory, the CPU with
    what is available now, so that nothing is swapped. Nothing is refused where the size is unknown.
    """
    parameters = tree.anatomy(name, case, checkpoint)[0].count
    weights, reference = parameters * _BYTES[dtype], parameters * _REFERENCE_BYTES
    room, of_what = _room(device)
    if room is not None and weights + reference > room:
        raise ValueError(
            f"{catalog.title(name)} does not fit on {device}: {parameters / 1e9:.3g} billion parameters take "
            f"{weights / _GIB:.3g} GiB in {dtype} and {reference / _GIB:.3g} GiB in the float64 reference; "
            f"{of_what}"
        )


def check_host(name: str, case: Mapping[str, Any], dtype: str, device: str, ranks: int) -> None:
    """ValueError with the sizes where so many ranks, each with a model of its own, do not fit into what is
    available of the main memory.

    A lower bound: every rank draws all weights in fp32 at the same time; on the CPU it keeps them in
    ``dtype``, and rank 0 makes the float64 reference beside its own.
    """
    parameters = tree.anatomy(name, case)[0].count
    processes = ranks * _RANK_BYTES
    needed = ranks * parameters * _DRAWN_BYTES
    if device == "cpu":
        needed = max(needed, parameters * (ranks * _BYTES[dtype] + _REFERENCE_BYTES))
    room, of_what = _room("cpu")
    if room is not None and processes + needed > room:
        raise ValueError(
            f"{ranks} ranks of {catalog.title(name)} do not fit into main memory: each draws all "
            f"{parameters / 1e9:.3g} billion parameters, and together they take at least "
            f"{(processes + needed) / _GIB:.3g} GiB; {of_what}"
        )


def _room(device: str) -> tuple[int | None, str]:
    """Bytes that there are, None where unknown, and as the end of a sentence."""
    if device == "cpu":
        free, total = _available(), environment.main_memory()
        text = "" if free is None else f"{free / _GIB:.3g} GiB of {total / _GIB:.3g} GiB are available"
        return free, text
    try:
        gpu = environment.gpu_of(device)
    except ValueError:  # opening the device reports it
        gpu = None
    total = gpu and gpu["memory_bytes"]
    return total, f"it has {total / _GIB:.3g} GiB" if total else ""


def _available() -> int | None:
    """Bytes of main memory that a new process can take without swapping, within the limit of its control
    group; None where the system does not say (Linux's /proc/meminfo and cgroup v2 do)."""
    found = []
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        found.append(1024 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")))
        group = Path("/sys/fs/cgroup")
        limit = (group / "memory.max").read_text().strip()
        if limit.isdigit():
            found.append(int(limit) - int((group / "memory.current").read_text()))
    except (OSError, StopIteration, ValueError):
        pass
    return min(found) if found else None
