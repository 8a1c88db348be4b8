"""Who else uses the CPUs: other processes, the hypervisor, and the time that this thread waited for a CPU.

Read from /proc in some 100 us, over the CPUs that this process may use. /proc/stat counts in ticks of 10 ms,
so figures are over a window of half a second at least; waiting is counted in nanoseconds (schedstat). What a
container's quota held back is in its cgroup's cpu.stat.
"""

from __future__ import annotations

import os
import time
from collections import deque
from pathlib import Path
from typing import Any

WINDOW_S = 0.5
QUIET_S = 3.0  # without a disturbed window, before CPUs count as idle: what else runs pauses now and then
OTHERS = 0.25  # CPUs that other processes keep busy: more than a desktop or a dashboard does in passing
STEAL = 0.02
WAITED = 0.05
_TICKS = os.sysconf("SC_CLK_TCK")
_PRESSURE = Path("/proc/pressure/cpu")
_SPAN_S = 10.0  # what crowding looks back on, where it was asked before
_recent: deque[tuple[float, float, float]] = deque(maxlen=64)  # (time, busy, under pressure) in seconds
_CGROUP = (Path("/sys/fs/cgroup/cpu.stat"), Path("/sys/fs/cgroup/cpu/cpu.stat"))


class Load:
    """Reads the load of the CPUs since some earlier reading."""

    def __init__(self, cpus: set[int] | None = None):
        self.cpus = cpus or os.sched_getaffinity(0)
        self._past: deque[tuple[float, ...]] = deque([_counters(self.cpus)])

    def read(self) -> dict[str, float] | None:
        """other_cpus (CPUs busy with other processes), steal (share of all CPUs' time), waited (share of the
        time that this thread was ready to run and did not), quota (share held back by a cgroup's limit); None
        before WINDOW_S have passed."""
        now = _counters(self.cpus)
        while len(self._past) > 1 and now[0] - self._past[1][0] >= WINDOW_S:
            self._past.popleft()
        wall, busy, own, stolen, waited, held = (a - b for a, b in zip(now, self._past[0], strict=True))
        if now[0] - self._past[-1][0] >= WINDOW_S / 10:
            self._past.append(now)
        if wall < WINDOW_S:
            return None
        figures = {
            "other_cpus": max(0.0, busy - own) / wall,
            "steal": stolen / wall / len(self.cpus),
            "waited": waited / wall,
            "quota": held / wall,
        }
        return {k: round(v, 4) for k, v in figures.items()}


def sentence(load: dict[str, Any] | None, cpus: int) -> str | None:
    """What disturbs, in words: "other processes use 1.3 of 2 CPUs"; None where nothing does."""
    if not load:
        return None
    found = []
    if load["other_cpus"] >= OTHERS:
        found.append(f"other processes use {load['other_cpus']:.1f} of {cpus} CPUs")
    if load["steal"] >= STEAL:
        found.append(f"the hypervisor takes {load['steal']:.0%} of the CPU time".replace("%", " %"))
    if load["quota"] > 0:
        found.append("the container's CPU limit is reached")
    if load["waited"] >= WAITED:
        found.append(f"the measurement waits for a CPU {load['waited']:.0%} of the time".replace("%", " %"))
    return ", ".join(found) or None


def crowding() -> float:
    """How many times as long one more thread takes because others want the CPUs: 1 where a CPU is left for
    it, and at most 5, because a peak passes.

    By what ran and waited since an earlier call, WINDOW_S to _SPAN_S ago: a job of ours that has just ended
    is still in the load average, which is of the last minute and serves where there was no such call or the
    system does not say who waits.
    """
    cpus = os.sched_getaffinity(0)
    try:
        average = os.getloadavg()[0]
    except OSError:
        return 1.0
    recent = _runnable(cpus, average)
    return min(5.0, max(1.0, ((average if recent is None else recent) + 1) / len(cpus)))


def _runnable(cpus: set[int], average: float) -> float | None:
    """Threads that ran or waited for a CPU of late, on average; None where that is not known. At least one
    waits for the share of time that /proc/pressure/cpu says: how many do is not said, but no more than the
    load average has."""
    now = _busy_and_pressed(cpus)
    if now is None:
        return None
    before = [at for at in _recent if WINDOW_S <= now[0] - at[0] <= _SPAN_S]
    if not _recent or now[0] - _recent[-1][0] >= WINDOW_S / 2:
        _recent.append(now)
    if not before:
        return None
    wall, busy, pressed = (a - b for a, b in zip(now, before[0], strict=True))
    ran, share = busy / wall, min(1.0, pressed / wall)
    waiting = share / (1 - share) if share < 1 else average
    return ran + min(waiting, max(0.0, average - ran))


def _busy_and_pressed(cpus: set[int]) -> tuple[float, float, float] | None:
    """(time, busy seconds of these CPUs, seconds in which something waited for one) so far."""
    try:
        total = int(_PRESSURE.read_text().split("total=")[1].split()[0]) / 1e6
    except (OSError, ValueError, IndexError):
        return None
    now, busy, *_ = _counters(cpus)
    return now, busy, total


def thread_s() -> tuple[float, float]:
    """Seconds that this thread has had a CPU so far, and that it has waited for one."""
    return time.thread_time(), _waited_s()


def idle(wait_s: float, step=lambda text: None, pause=time.sleep) -> str | None:
    """What disturbs now, looked at for WINDOW_S; with ``wait_s`` until nothing has for QUIET_S, for at most
    so long. ``step(sentence)`` is called between looks (it may raise Cancelled)."""
    begun, quiet, last = time.monotonic(), 0, None
    needed = round(QUIET_S / WINDOW_S) if wait_s else 1
    while True:
        load = Load()
        pause(WINDOW_S * 1.05)
        busy = sentence(load.read(), len(load.cpus))
        quiet = 0 if busy else quiet + 1
        last = busy or last
        if quiet >= needed:
            return None
        if time.monotonic() - begun >= wait_s:
            return last
        step(busy or "none of the others ran just now")


def _counters(cpus: set[int]) -> tuple[float, ...]:
    """Seconds so far: wall clock, busy and stolen time of these CPUs, CPU time of this process and of its
    children that have ended, this thread's waiting, the cgroup's throttling. What the system does not say
    is 0."""
    busy = stolen = 0.0
    try:
        for line in Path("/proc/stat").read_text().splitlines():
            name, *fields = line.split()
            if name.startswith("cpu") and name[3:].isdigit() and int(name[3:]) in cpus:
                user, nice, system, _, _, irq, softirq, steal = map(int, fields[:8])
                busy += (user + nice + system + irq + softirq) / _TICKS
                stolen += steal / _TICKS
    except (OSError, ValueError):
        pass
    children = os.times()
    own = time.process_time() + children.children_user + children.children_system
    return time.monotonic(), busy, own, stolen, _waited_s(), _held_s()


def _waited_s() -> float:
    try:
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def _held_s() -> float:
    for file in _CGROUP:
        try:
            found = dict(line.split() for line in file.read_text().splitlines())
            return int(found.get("throttled_usec", 0)) / 1e6 + int(found.get("throttled_time", 0)) / 1e9
        except (OSError, ValueError):
            continue
    return 0.0
