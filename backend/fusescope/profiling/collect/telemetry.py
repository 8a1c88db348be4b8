"""The device over time while a job works: clocks, power, temperature, throttle reasons, memory, at 20 samples
a second.

Without a GPU only the job's own process is sampled, and ``source`` says so. Times are Unix ns, the clock of
torch's traces.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fusescope.core.machine import nvml
from fusescope.profiling import table
from fusescope.profiling.table import ABSENT, coded

HZ = 20.0
_WHOLE = (
    "ts_ns",
    "sm_mhz",
    "memory_mhz",
    "temperature_c",
    "memory_used_bytes",
    "memory_total_bytes",
    "reasons",
    "rss_bytes",
    "allocated_bytes",
    "reserved_bytes",
)
_REAL = ("power_w", "energy_j", "gpu_percent", "memory_percent", "cpu_percent")


def gpu(uuid: str) -> Callable[[], dict]:
    """A function that reads a GPU's state and usage now. Raises nvml.NvmlError where NVML does not give
    them."""
    reader = nvml.Reader(uuid)
    return lambda: reader.state() | reader.usage()


def process(pid: int | None = None) -> Callable[[], dict]:
    """A function that reads this process's (or another's) resident memory and CPU load since the last
    reading, from /proc."""
    pid = pid or os.getpid()
    tick, page, last = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE"), [0.0, 0.0]

    def read() -> dict:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return {"rss_bytes": None, "cpu_percent": None}
        now, used = time.monotonic(), (int(fields[11]) + int(fields[12])) / tick
        percent = 100 * (used - last[1]) / (now - last[0]) if last[0] else None
        last[:] = now, used
        return {"rss_bytes": int(fields[21]) * page, "cpu_percent": percent}

    return read


class Telemetry:
    """``with Telemetry(readers, path):`` samples in a thread until the end, then writes the Parquet file and
    a .json next to it.

    readers: functions that give parts of a sample; source: "nvml" or "process"; note: what is missing and
    why.
    """

    def __init__(
        self,
        readers: list[Callable[[], dict]],
        path: Path,
        source: str,
        note: str | None = None,
        hz: float = HZ,
    ):
        self.readers, self.path, self.source, self.note, self.hz = readers, Path(path), source, note, hz
        self.samples: list[dict] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="telemetry", daemon=True)

    def __enter__(self) -> Telemetry:
        self._sample()
        self._thread.start()
        return self

    def __exit__(self, *error) -> None:
        self._stop.set()
        self._thread.join(timeout=5)
        self._sample()
        with contextlib.suppress(ModuleNotFoundError):  # without pyarrow the samples go into the .json
            table.write(self.path, self.columns())
        facts = self.facts()
        if not self.path.is_file():
            facts["samples"] = self.samples
        self.path.with_suffix(".json").write_text(json.dumps(facts, indent=1))

    def columns(self) -> dict:
        there = {key for sample in self.samples for key in sample}
        found: dict = {}
        for name in (*_WHOLE, *_REAL):
            if name in there:
                values = [s.get(name) for s in self.samples]
                whole = name in _WHOLE
                found[name] = np.array(
                    [(ABSENT if whole else np.nan) if v is None else v for v in values],
                    np.int64 if whole else float,
                )
        if "reasons" in there:
            found["throttled"] = coded(
                [", ".join(nvml.faults(s.get("reasons") or 0)) or None for s in self.samples]
            )
        return found

    def facts(self) -> dict:
        """{"source", "note", "count", "hz" (as reached), "throttled" (share of samples, None without NVML),
        "reasons" (names)}."""
        count = len(self.samples)
        span = (self.samples[-1]["ts_ns"] - self.samples[0]["ts_ns"]) / 1e9 if count > 1 else 0
        bits = [s["reasons"] for s in self.samples if s.get("reasons") is not None]
        return {
            "source": self.source,
            "note": self.note,
            "count": count,
            "hz": (count - 1) / span if span else None,
            "throttled": sum(bool(b & nvml.FAULTS) for b in bits) / len(bits) if bits else None,
            "reasons": sorted({name for b in bits for name in nvml.faults(b)}),
        }

    def _work(self) -> None:
        due = time.monotonic()
        while not self._stop.is_set():
            due += 1 / self.hz
            if not self._stop.wait(max(0.0, due - time.monotonic())):
                self._sample()

    def _sample(self) -> None:
        sample: dict = {"ts_ns": time.time_ns()}
        for read in self.readers:
            with contextlib.suppress(OSError, RuntimeError):  # one reading that fails leaves a hole, no more
                sample |= read()
        self.samples.append(sample)


def watch(device: str, uuid: str | None, path: Path, hz: float = HZ) -> Telemetry:
    """The telemetry of a job on "cpu" or "cuda:N" (its UUID given): NVML where there is one, and always the
    process."""
    readers, source, note = [process()], "process", None
    if device == "cpu":
        note = "the job ran on the CPU: resident memory and load of its process, no GPU"
    elif uuid is None:
        note = "the GPU's UUID is not known, so only the process is recorded"
    else:
        try:
            readers.append(gpu(uuid))
            source = "nvml"
        except nvml.NvmlError as error:
            note = str(error)
    return Telemetry(readers, path, source, note, hz)
