"""What NVML says about the GPUs. NVML needs the driver only: it makes no CUDA context and works while others
use the GPUs. Nothing is ever set.

What GPUs there are comes through the package nvidia-ml-py, or from nvidia-smi without it. A GPU's changing
state is read by ``Reader`` through ctypes: a measurement must not depend on a Python package.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
from functools import lru_cache
from pathlib import Path
from typing import Any

CORES_PER_SM = {
    (7, 5): 64,
    (8, 0): 64,
    (8, 6): 128,
    (8, 7): 128,
    (8, 9): 128,
    (9, 0): 128,
    (10, 0): 128,
    (12, 0): 128,
}
"""CUDA C++ programming guide, "arithmetic instructions": fp32 lanes a multiprocessor. NVML counts cores, not
multiprocessors."""

REASONS = {
    0x1: "idle",
    0x2: "application clocks",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
    0x100: "display clocks",
}
"""Bits of nvmlClocksEventReasons (nvml.h): why the clocks are where they are."""
# the reasons that make a GPU slower than it should be; at its power cap it runs as it does at full load
FAULTS = 0x8 | 0x20 | 0x40 | 0x80
_NOTHING = 0x1 | 0x2  # idle, application clocks
_CLOCK_SM, _CLOCK_MEMORY, _TEMPERATURE_GPU = 1, 2, 0  # nvmlClockType_t, nvmlTemperatureSensors_t

_ready: dict[int, Any] = {}


class NvmlError(RuntimeError):
    """NVML cannot be used; the text says why."""


def faults(bits: int) -> list[str]:
    """The names of the faults in a bit mask of clocks-event reasons."""
    return [name for bit, name in REASONS.items() if bits & bit & FAULTS]


def named(bits: int) -> list[str]:
    """The names of all reasons in a bit mask that say why a clock is where it is."""
    return [name for bit, name in REASONS.items() if bits & bit & ~_NOTHING]


class Reader:
    """The state of the GPU with this UUID ("GPU-…"; CUDA and NVML number GPUs differently). Raises NvmlError
    where NVML or the GPU is not there. A value that this GPU or driver does not give is None."""

    def __init__(self, uuid: str):
        try:
            self._library = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError as error:
            raise NvmlError(
                f"NVML cannot be opened ({error}); the GPU's clocks and power are not recorded"
            ) from None
        self._handle = ctypes.c_void_p()
        status = self._library.nvmlInit_v2() or self._library.nvmlDeviceGetHandleByUUID(
            uuid.encode(), ctypes.byref(self._handle)
        )
        if status:
            raise NvmlError(
                f"NVML does not give {uuid} (error {status}); its clocks and power are not recorded"
            )

    def state(self) -> dict[str, Any]:
        """sm_mhz, memory_mhz, temperature_c, power_w, reasons (bit mask of REASONS)."""
        power = self._ask("PowerUsage", ctypes.c_uint)
        return {
            "sm_mhz": self._ask("ClockInfo", ctypes.c_uint, _CLOCK_SM),
            "memory_mhz": self._ask("ClockInfo", ctypes.c_uint, _CLOCK_MEMORY),
            "temperature_c": self._ask("Temperature", ctypes.c_uint, _TEMPERATURE_GPU),
            "power_w": None if power is None else power / 1000,
            "reasons": self.reasons(),
        }

    def reasons(self) -> int | None:
        """Bit mask of REASONS."""
        bits = self._ask("CurrentClocksEventReasons", ctypes.c_ulonglong)
        if bits is None:  # its name before driver 535
            bits = self._ask("CurrentClocksThrottleReasons", ctypes.c_ulonglong)
        return bits

    def sm_mhz(self) -> int | None:
        """The SM clock now."""
        return self._ask("ClockInfo", ctypes.c_uint, _CLOCK_SM)

    def usage(self) -> dict[str, Any]:
        """energy_j (since the driver was loaded), gpu_percent, memory_percent, memory_used_bytes,
        memory_total_bytes."""
        energy = self._ask("TotalEnergyConsumption", ctypes.c_ulonglong)
        busy = self._ask("UtilizationRates", ctypes.c_uint * 2) or (None, None)
        total, _, used = self._ask("MemoryInfo", ctypes.c_ulonglong * 3) or (None, None, None)
        return {
            "energy_j": None if energy is None else energy / 1000,
            "gpu_percent": busy[0],
            "memory_percent": busy[1],
            "memory_used_bytes": used,
            "memory_total_bytes": total,
        }

    def _ask(self, what: str, kind, *arguments: int):
        """What nvmlDeviceGet<what> writes: a number, or a list for an array."""
        function = getattr(self._library, f"nvmlDeviceGet{what}", None)
        value = kind()
        if function is None or function(self._handle, *map(ctypes.c_int, arguments), ctypes.byref(value)):
            return None
        return value.value if hasattr(value, "value") else list(value)


def open_library() -> Any:
    """pynvml, initialised once per process. Raises ImportError without the package, pynvml.NVMLError without
    a working driver."""
    if os.getpid() not in _ready:
        import pynvml

        pynvml.nvmlInit()
        _ready.clear()  # a forked child initialises for itself
        _ready[os.getpid()] = pynvml
    return _ready[os.getpid()]


def problem() -> str | None:
    """Why NVML does not work here, in NVML's words; None when it does."""
    try:
        open_library()
    except ImportError:
        return "the Python package nvidia-ml-py is missing"
    except Exception as error:  # pynvml.NVMLError and what ctypes raises for a damaged library
        return str(error)
    return None


def versions() -> tuple[str | None, str | None]:
    """(driver version, newest CUDA it takes as "13.0"), None where unknown."""
    if problem():
        return next(((row["driver"], None) for row in _by_nvidia_smi()), (None, None))
    library = open_library()
    with contextlib.suppress(library.NVMLError):
        number = library.nvmlSystemGetCudaDriverVersion_v2()
        return _text(library.nvmlSystemGetDriverVersion()), f"{number // 1000}.{number % 1000 // 10}"
    return None, None


def gpus() -> list[dict[str, Any]]:
    """One dict per GPU (see environment.gpus); empty without a driver. ``speed``: cores × maximum clock in
    MHz, to order GPUs.

    Without the package nvidia-ml-py nvidia-smi is run, once per process: slower, and without multiprocessors
    and processes.
    """
    if problem():
        return [{k: v for k, v in row.items() if k != "driver"} for row in _by_nvidia_smi()]
    library = open_library()
    return [_facts(library, i) for i in range(library.nvmlDeviceGetCount())]


@lru_cache(maxsize=1)
def _by_nvidia_smi() -> tuple[dict[str, Any], ...]:
    query = "index,uuid,name,compute_cap,memory.total,driver_version"
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    rows = (
        [[word.strip() for word in line.split(",")] for line in done.stdout.splitlines()]
        if done.returncode == 0
        else []
    )
    return tuple(
        {
            "index": int(index),
            "uuid": uuid,
            "name": name,
            "compute_capability": cc,
            "memory_bytes": int(memory) << 20 if memory.isdigit() else None,
            "sms": None,
            "speed": None,
            "exclusive": None,
            "processes": [],
            "driver": driver,
        }
        for index, uuid, name, cc, memory, driver in rows
    )


def _facts(library, index: int) -> dict[str, Any]:
    handle = library.nvmlDeviceGetHandleByIndex(index)
    capability = tuple(library.nvmlDeviceGetCudaComputeCapability(handle))
    cores = _try(library, library.nvmlDeviceGetNumGpuCores, handle)
    clock = _try(library, library.nvmlDeviceGetMaxClockInfo, handle, library.NVML_CLOCK_SM)
    memory = _try(library, library.nvmlDeviceGetMemoryInfo, handle)
    return {
        "index": index,
        "uuid": _text(library.nvmlDeviceGetUUID(handle)),
        "name": _text(library.nvmlDeviceGetName(handle)),
        "compute_capability": f"{capability[0]}.{capability[1]}",
        "memory_bytes": memory.total if memory else None,
        "sms": cores // CORES_PER_SM[capability] if cores and capability in CORES_PER_SM else None,
        "speed": cores * clock if cores and clock else None,
        "exclusive": _exclusive(library, handle),
        "processes": _processes(library, handle),
    }


def _exclusive(library, handle) -> bool | None:
    """Whether the GPU lets one process in at a time (its compute mode); None where it does not say."""
    mode = _try(library, library.nvmlDeviceGetComputeMode, handle)
    return None if mode is None else mode == library.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS


def _processes(library, handle) -> list[dict[str, Any]]:
    found = {}
    for ask in (library.nvmlDeviceGetComputeRunningProcesses, library.nvmlDeviceGetGraphicsRunningProcesses):
        for process in _try(library, ask, handle) or ():
            memory = process.usedGpuMemory
            found[process.pid] = {
                "pid": process.pid,
                "name": _process_name(library, process.pid),
                "memory_bytes": memory or None,
            }
    return list(found.values())


def _process_name(library, pid: int) -> str | None:
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if words[0]:
            return Path(words[0].decode(errors="replace")).name
    name = _try(library, library.nvmlSystemGetProcessName, pid)
    return Path(_text(name)).name if name else None


def _try(library, function, *args):
    """The answer, or None where this GPU or driver does not give it."""
    try:
        return function(*args)
    except library.NVMLError:
        return None


def _text(value) -> str:
    return value.decode() if isinstance(value, bytes) else value
