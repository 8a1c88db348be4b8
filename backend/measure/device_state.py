"""The device's state in each round: clocks, temperature, power and the reasons for which clocks are held down.

The device is found by UUID, because CUDA and NVML number devices differently. Nothing is ever set.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from backend.core import nvml

FAULTS = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
"""Clocks-event-reason bits that mean the device was slower than its settings (nvml.h, nvmlClocksEventReasons). Idle (0x1) and
application clocks (0x2) are no faults."""


class NvmlError(RuntimeError):
    """NVML cannot be used; the text says why."""


def faults(bits: int) -> list[str]:
    """The names of the faults in a clocks-event-reason bit mask."""
    return [name for bit, name in FAULTS.items() if bits & bit]


def throttled(states: list[dict]) -> bool:
    """Whether any of the states carries a fault."""
    return any(s.get("faults") for s in states)


def reader(device: str) -> Callable[[], dict | None]:
    """A function that reads the state of "cuda:N" or "cpu" now. Raises NvmlError where a GPU's state cannot be read.

    GPU: sm_mhz, memory_mhz, temperature_c, power_w, reasons (bit mask), faults (names); None where the GPU does not say.
    CPU: mhz (mean over cores), load (one-minute average), faults always empty.
    """
    return _GpuReader(device) if device.startswith("cuda") else _cpu


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


class _GpuReader:
    def __init__(self, device: str):
        import torch

        uuid = f"GPU-{torch.cuda.get_device_properties(device).uuid}"
        if why := nvml.problem():
            raise NvmlError(f"NVML does not work here ({why}); clocks and throttling are not recorded")
        self._nvml = nvml.open_library()
        try:
            self._handle = self._nvml.nvmlDeviceGetHandleByUUID(uuid)
        except self._nvml.NVMLError as e:
            raise NvmlError(f"NVML does not know {device}, {uuid} ({e}); clocks and throttling are not recorded") from None

    def __call__(self) -> dict:
        n = self._nvml
        reasons = self._ask("nvmlDeviceGetCurrentClocksEventReasons")
        if reasons is None:  # the name before driver 535
            reasons = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons")
        power = self._ask("nvmlDeviceGetPowerUsage")
        return {
            "sm_mhz": self._ask("nvmlDeviceGetClockInfo", n.NVML_CLOCK_SM),
            "memory_mhz": self._ask("nvmlDeviceGetClockInfo", n.NVML_CLOCK_MEM),
            "temperature_c": self._ask("nvmlDeviceGetTemperature", n.NVML_TEMPERATURE_GPU),
            "power_w": None if power is None else power / 1000,
            "reasons": reasons,
            "faults": faults(reasons or 0),
        }

    def _ask(self, function: str, *arguments):
        """A number, or None where this GPU, driver or package does not give it."""
        try:
            return getattr(self._nvml, function)(self._handle, *arguments)
        except (AttributeError, self._nvml.NVMLError):
            return None
