"""The device's state in each round: clocks, temperature, power and the reasons why clocks are lowered."""

from __future__ import annotations

import os
from collections.abc import Callable

from fusescope.core.machine import nvml


def throttled(states: list[dict]) -> bool:
    """Whether any of the states carries a fault."""
    return any(s.get("faults") for s in states)


def reader(device: str) -> Callable[[], dict | None]:
    """A function that reads the state of "cuda:N" or "cpu" now. Raises nvml.NvmlError where a GPU's state
    cannot be read.

    GPU: sm_mhz, memory_mhz, temperature_c, power_w, reasons (bit mask), faults (names); None where the GPU
    does not say. CPU: mhz (mean over cores), load (one-minute average), faults always empty.
    """
    if not device.startswith("cuda"):
        return _cpu
    import torch

    gpu = nvml.Reader(f"GPU-{torch.cuda.get_device_properties(device).uuid}")

    def read() -> dict:
        state = gpu.state()
        return state | {"faults": nvml.faults(state["reasons"] or 0)}

    return read


def _cpu() -> dict:
    return {"mhz": _cpu_mhz(), "load": os.getloadavg()[0], "faults": []}


def _cpu_mhz() -> float | None:
    found = []
    for core in os.sched_getaffinity(0):
        try:
            with open(f"/sys/devices/system/cpu/cpu{core}/cpufreq/scaling_cur_freq") as f:
                found.append(int(f.read()) / 1000)
        except (OSError, ValueError):
            return None  # virtual machines hide it
    return round(sum(found) / len(found), 1) if found else None
