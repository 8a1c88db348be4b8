"""The device's state in each round: clocks and their reasons, temperature, power; who else uses it."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterable
from typing import Any

from fusescope.core.machine import environment, load, nvml
from fusescope.core.machine.conditions import Conditions

_PROCESSES_S = 2.0  # between two looks at a GPU's processes, which take some milliseconds


def reader(device: str, cpus: load.Load | None = None) -> Callable[[], dict | None]:
    """A function that reads the state of "cuda:N" or "cpu" now. Raises nvml.NvmlError where a GPU's state
    cannot be read. ``cpus``: a reading begun earlier, so that the first rounds are known, too.

    GPU: sm_mhz, memory_mhz, temperature_c, power_w, reasons (bit mask), faults (names); None where the GPU
    does not say. CPU: mhz (mean over cores), load (one-minute average), other_cpus, steal, waited, quota (see
    load.py; missing in the first half second). Both: busy, the sentence that marks what was sampled then.
    """
    if not device.startswith("cuda"):
        return _cpu_reader(cpus or load.Load())
    gpu, others = nvml.Reader(_uuid(device)), Others(device)

    def read() -> dict:
        state = gpu.state()
        return state | {"faults": nvml.faults(state["reasons"] or 0), "busy": others.sentence()}

    return read


def clock_reader(device: str) -> Callable[[], float | None]:
    """A function that reads a GPU's SM clock in MHz, in some microseconds; of a CPU always None."""
    if not device.startswith("cuda"):
        return lambda: None
    return nvml.Reader(_uuid(device)).sm_mhz


def conditions(
    states: list[dict], clocks: Iterable[float | None], others: Iterable[float | None], compared: int
) -> Conditions:
    """Of one implementation: the states of its rounds, its SM clocks and the baseline's, one per turn."""
    own, base = _median(clocks), _median(others)
    marked = [s["busy"] for s in states if s.get("busy")]
    bits = 0
    for state in states:
        bits |= state.get("reasons") or 0
    return Conditions(
        sm_mhz=own if own is not None else _median(s.get("sm_mhz") for s in states),
        memory_mhz=_median(s.get("memory_mhz") for s in states),
        reasons=tuple(nvml.named(bits)),
        clock_difference=round(own / base - 1, 4) if own and base else None,
        other_cpus=_most(states, "other_cpus"),
        steal=_most(states, "steal"),
        waited=_most(states, "waited"),
        busy=max(marked, key=marked.count) if marked else None,
        busy_rounds=round(len(marked) / len(states), 4) if states else None,
        compared=compared,
    )


_siblings: frozenset[int] = frozenset()


def expect(siblings: Iterable[int]) -> None:
    """Process ids that may be on the GPU, too, and do nothing there while this process measures: the others
    of a comparison in several processes."""
    global _siblings
    _siblings = frozenset(siblings)


class Others:
    """Other processes on a GPU, by NVML, looked at every few seconds. Where NVML does not list this process
    either, its numbers are another container's and say nothing."""

    def __init__(self, device: str):
        self._device, self._next, self._said = device, 0.0, None

    def sentence(self) -> str | None:
        if time.monotonic() >= self._next:
            found = (environment.gpu_of(self._device) or {}).get("processes") or []
            own = any(p.get("pid") == os.getpid() for p in found)
            others = [p for p in found if p["pid"] not in _siblings | {os.getpid()}]
            names = [f"{p.get('name') or 'a process'} ({p['pid']})" for p in others]
            self._said = f"{', '.join(names)} use this GPU" if own and names else None
            self._next = time.monotonic() + _PROCESSES_S
        return self._said


def _cpu_reader(cpus: load.Load) -> Callable[[], dict]:
    def read() -> dict[str, Any]:
        now = cpus.read()
        state = {"mhz": _cpu_mhz(), "load": os.getloadavg()[0], "faults": []} | (now or {})
        return state | {"busy": load.sentence(now, len(cpus.cpus))}

    return read


def _cpu_mhz() -> float | None:
    found = []
    for core in os.sched_getaffinity(0):
        try:
            with open(f"/sys/devices/system/cpu/cpu{core}/cpufreq/scaling_cur_freq") as f:
                found.append(int(f.read()) / 1000)
        except (OSError, ValueError):
            return None  # virtual machines hide it
    return round(sum(found) / len(found), 1) if found else None


def _uuid(device: str) -> str:
    import torch

    return f"GPU-{torch.cuda.get_device_properties(device).uuid}"


def _median(values: Iterable[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return statistics.median(known) if known else None


def _most(states: list[dict], name: str) -> float | None:
    return max((s[name] for s in states if s.get(name) is not None), default=None)
