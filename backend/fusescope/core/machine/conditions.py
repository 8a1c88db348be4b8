"""The device while the samples of a record were taken: its clock and why it was there, who else used it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

NO_DEVICE = "unknown device"
"""The device of a run that does not say on which it ran, or not yet."""
UNNAMED_DEVICE = "device not named in the file"
"""That of an imported profile whose file names none."""
CLOCK_DIFFERS = 0.01
"""A difference from the baseline's clock that is marked. Nothing is corrected for it."""
_BUSY, _SETTINGS = "busy machine", "changed settings"


@dataclass(frozen=True)
class Conditions:
    """GPU: median SM and memory clocks in MHz while this implementation was sampled, names of the
    clocks-event reasons met, and by how much its SM clock was above (+) or below the baseline's, 0 … 1. CPU:
    the most CPUs that other processes kept busy, and the largest shares of the time that a hypervisor took
    and that this process waited for a CPU. ``busy``: the sentence that marks samples taken while others used
    the device, and busy_rounds the share of such rounds. None: not known here. ``compared``: results of timed
    calls that were compared with the reference. ``settings``: those of the whole process that the
    implementation changed, and that were put back. device_name, device_uuid and host: of the worker of a
    cluster that measured it; None: the run's own.
    """

    sm_mhz: float | None = None
    memory_mhz: float | None = None
    reasons: tuple[str, ...] = ()
    clock_difference: float | None = None
    other_cpus: float | None = None
    steal: float | None = None
    waited: float | None = None
    busy: str | None = None
    busy_rounds: float | None = None
    compared: int | None = None
    settings: str | None = None
    device_name: str | None = None
    device_uuid: str | None = None
    host: str | None = None

    @property
    def clock_note(self) -> str | None:
        """What marks a record whose clock was another than the baseline's: "SM clock 2.3 % below the
        baseline's"."""
        return f"SM clock {self.clock_off[1]} {self.clock_off[0]} the baseline's" if self.clock_off else None

    @property
    def clock_off(self) -> tuple[str, str] | None:
        """("below", "2.3 %"): how the clock differed from the baseline's; None where it is no mark."""
        off = self.clock_difference
        if off is None or abs(off) <= CLOCK_DIFFERS:
            return None
        return "above" if off > 0 else "below", f"{abs(off):.1%}".replace("%", " %")

    def over(self, baseline: Conditions | None) -> Conditions:
        """The same with the clock compared with that of another baseline, where both are known."""
        known = baseline and baseline.sm_mhz and self.sm_mhz
        off = round(self.sm_mhz / baseline.sm_mhz - 1, 4) if known else None
        return dataclasses.replace(self, clock_difference=off)

    @property
    def clock(self) -> str | None:
        """ "1755 MHz (power cap)"; None on a CPU."""
        if self.sm_mhz is None:
            return None
        return f"{self.sm_mhz:.0f} MHz" + (f" ({', '.join(self.reasons)})" if self.reasons else "")


def marks(record) -> list[str]:
    """What marks a record (core.records.Record) in tables and charts: a clock that differed, a device that
    was shared, settings that were changed. One from before conditions were kept has none: its "throttled" was
    the power cap as a rule."""
    found = record.conditions
    if found is None:
        return []
    busy = _BUSY if found.busy else None
    settings = _SETTINGS if found.settings else None
    return [mark for mark in (found.clock_note, busy, settings) if mark]


def footnotes(records, name: Callable[[str], str]) -> list[str]:
    """The marks of the records of one case, each with those that have it: "SM clock below the baseline's: v2
    2.3 %, v5 3.8 %", "busy machine: all". ``name``: what an implementation is called."""
    found: dict[str, list[str]] = {}
    timed = [r for r in records if r.time_ms]
    for r in timed:
        for mark in marks(r):
            off = r.conditions.clock_off if mark == r.conditions.clock_note else None
            text = f"SM clock {off[0]} the baseline's" if off else mark
            found.setdefault(text, []).append(f"{name(r.impl)} {off[1]}" if off else name(r.impl))
    shared = (_BUSY, _SETTINGS)
    every = {text for text in shared if len(found.get(text, ())) == len(timed) > 1}
    return [f"{text}: {'all' if text in every else ', '.join(named)}" for text, named in found.items()]


def banner(records) -> str | None:
    """The sentence over records of which some were sampled on a busy machine."""
    busy = [r.conditions for r in records if r.conditions and r.conditions.busy]
    if not busy:
        return None
    worst = max(busy, key=lambda c: c.busy_rounds or 0.0)
    share = f"{worst.busy_rounds or 0:.0%}".replace("%", " %")
    return f"The machine was busy while this was measured: {worst.busy}, in up to {share} of the rounds."


def device_of(record) -> str | None:
    """What the device of a record from a cluster is called; None: the run's own."""
    return record.conditions.device_name if record.conditions else None


def are_unlike(records) -> bool:
    """Whether the records are of several kinds of device."""
    return len({name for r in records if (name := device_of(r))}) > 1


def unlike(records) -> str | None:
    """The sentence over records of which some were measured on another kind of device than others."""
    if not are_unlike(records):
        return None
    names = ", ".join(sorted({name for r in records if (name := device_of(r))}))
    return f"Measured on unlike devices ({names}): times of one device only are compared."
