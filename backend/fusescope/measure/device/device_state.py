"""The device's state in each round: clocks, temperature, power and the reasons for which clocks are held
down.

NVML is called by ctypes (libnvidia-ml.so.1 comes with the driver): three numbers a round must not depend on a
Python package, and the device is found by UUID, because CUDA and NVML number devices differently. Nothing is
ever set.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable

_CLOCK_SM, _CLOCK_MEMORY, _TEMPERATURE_GPU = 1, 2, 0  # nvmlClockType_t, nvmlTemperatureSensors_t

FAULTS = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
"""Clocks-event-reason bits that mean the device was slower than its settings (nvml.h,
nvmlClocksEventReasons). Idle (0x1) and application clocks (0x2) are no faults."""


class NvmlError(RuntimeError):
    """NVML cannot be used; the text says why."""


def faults(bits: int) -> list[str]:
    """The names of the faults in a clocks-event-reason bit mask."""
    return [name for bit, name in FAULTS.items() if bits & bit]


def throttled(states: list[dict]) -> bool:
    """Whether any of the states carries a fault."""
    return any(s.get("faults") for s in states)


def reader(device: str) -> Callable[[], dict | None]:
    """A function that reads the state of "cuda:N" or "cpu" now. Raises NvmlError where a GPU's state cannot
    be read.

    GPU: sm_mhz, memory_mhz, temperature_c, power_w, reasons (bit mask), faults (names); None where the GPU
    does not say. CPU: mhz (mean over cores), load (one-minute average), faults always empty.
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
        try:
            self._nvml = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError as e:
            raise NvmlError(f"NVML cannot be opened ({e}); clocks and throttling are not recorded") from None
        self._handle = ctypes.c_void_p()
        status = self._nvml.nvmlInit_v2() or self._nvml.nvmlDeviceGetHandleByUUID(
            uuid.encode(), ctypes.byref(self._handle)
        )
        if status:
            raise NvmlError(
                f"NVML does not give {device}, {uuid} (error {status}); clocks and throttling are not recorded"
            )

    def __call__(self) -> dict:
        reasons = self._ask("nvmlDeviceGetCurrentClocksEventReasons", ctypes.c_ulonglong)
        if reasons is None:  # its name before driver 535
            reasons = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons", ctypes.c_ulonglong)
        power = self._ask("nvmlDeviceGetPowerUsage", ctypes.c_uint)
        return {
            "sm_mhz": self._ask("nvmlDeviceGetClockInfo", ctypes.c_uint, _CLOCK_SM),
            "memory_mhz": self._ask("nvmlDeviceGetClockInfo", ctypes.c_uint, _CLOCK_MEMORY),
            "temperature_c": self._ask("nvmlDeviceGetTemperature", ctypes.c_uint, _TEMPERATURE_GPU),
            "power_w": None if power is None else power / 1000,
            "reasons": reasons,
            "faults": faults(reasons or 0),
        }

    def _ask(self, function: str, kind, *arguments: int):
        """A number, or None where this GPU or driver does not give it."""
        if not hasattr(self._nvml, function):
            return None
        value = kind()
        status = getattr(self._nvml, function)(
            self._handle, *(ctypes.c_int(a) for a in arguments), ctypes.byref(value)
        )
        return value.value if status == 0 else None
