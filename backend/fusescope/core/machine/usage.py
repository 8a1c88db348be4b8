"""How much of the machine is in use now, for the live device panel: CPUs and memory by /proc, a GPU by
NVML."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from fusescope.core.machine import nvml


class Cpus:
    """The CPUs' use since the last reading."""

    def __init__(self):
        self._before, self._share = _ticks(), None
        self._at = time.monotonic()

    def read(self) -> float | None:
        """Share of all CPUs' time that was spent in processes, 0 … 1; None before the first half second, and
        where /proc does not say."""
        if time.monotonic() - self._at < 0.5:
            return self._share
        now = _ticks()
        if now and self._before and now[1] > self._before[1]:
            self._share = min(1.0, max(0.0, (now[0] - self._before[0]) / (now[1] - self._before[1])))
        self._before, self._at = now, time.monotonic()
        return self._share


def memory() -> tuple[int, int] | None:
    """(bytes in use, bytes) of the machine's memory; None where /proc does not say."""
    try:
        pairs = (line.partition(":")[::2] for line in Path("/proc/meminfo").read_text().splitlines())
        found = {name: int(kib.split()[0]) << 10 for name, kib in pairs}
        return found["MemTotal"] - found["MemAvailable"], found["MemTotal"]
    except (OSError, ValueError, KeyError, IndexError):
        return None


def gpu(uuid: str) -> dict[str, Any] | str:
    """``nvml.Reader``'s state and usage of a GPU, each figure None where it is not given; or the sentence why
    there is none."""
    try:
        reader = nvml.Reader(uuid)
    except nvml.NvmlError as error:
        return str(error)
    return reader.state() | reader.usage()


def _ticks() -> tuple[int, int] | None:
    """(busy, all) ticks of all CPUs so far. Time that a hypervisor took counts as neither."""
    try:
        words = Path("/proc/stat").read_text().partition("\n")[0].split()[1:8]
        user, nice, system, idle, waiting, irq, softirq = map(int, words)
    except (OSError, ValueError):
        return None
    busy = user + nice + system + irq + softirq
    return busy, busy + idle + waiting
