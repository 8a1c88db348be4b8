"""Communication with other ranks in one rank's profile: its share, what no compute hides, and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fusescope.analysis.profile.device_time import DeviceTime
from fusescope.analysis.profile.figures import percent, time
from fusescope.analysis.profile.recommendation import WORTH, Recommendation, shortened
from fusescope.analysis.profile.single import single_gaps

_HOST = ("idle_host_ns", "idle_synchronised_ns")


def text(of: DeviceTime) -> str:
    """Its share of the kernel time, and the share of the devices' time in which nothing else computes."""
    whole = max(1, sum(of.whole.values()))
    exposed = of.whole["exposed_ns"]
    hidden = (
        "kernels compute during all of it"
        if not exposed
        else f"for {percent(exposed / whole)} of the time nothing computes meanwhile, waits for other ranks "
        "included"
    )
    share = percent(of.communication_ns / max(1, of.kernel_ns))
    return f"communication takes {share} of the kernel time; {hidden}"


def largest(of: DeviceTime, summary: Mapping[str, Any]) -> str | None:
    """The parts of the devices' time, single gaps left out, in words, where communication that nothing hides
    is the largest of them; None else. Idle time is a part by cause; of the host's both are one."""
    idle = {name: ns for name, ns in of.whole.items() if name.startswith("idle_")}
    single = single_gaps(summary)
    for gap in single:
        name = f"idle_{gap.get('cause')}_ns"
        idle[name] = idle.get(name, 0) - gap["dur_ns"]
    others = {
        "kernels that compute": of.whole["compute_ns"] + of.whole["overlapped_ns"],
        "memcpy/memset alone": of.whole["memory_ns"],
        "waiting for the host": sum(idle.pop(name, 0) for name in _HOST),
        "launch latency or a dependency": idle.pop("idle_launched_ns", 0),
        "idle for other causes": sum(idle.values()),
    }
    exposed = of.whole["exposed_ns"]
    if exposed <= max(others.values()):
        return None
    most = sorted(others.items(), key=lambda one: -one[1])
    said = ", ".join(f"{word} {time(ns)}" for word, ns in most if ns >= 0.01 * exposed)
    of_what = "the rest" if single else "the time"
    return f"communication alone is the largest part of {of_what}, {time(exposed)}, before {said}"


def advice(of: DeviceTime, span: int, steps: int) -> list[Recommendation]:
    """What to do about communication that nothing hides, with the bound that a step without it gives; nothing
    where that is little. span: ns of all steps that the bound is of."""
    exposed = of.whole["exposed_ns"]
    if exposed < WORTH * span:
        return []
    name, (calls, ns) = next(iter(of.communication.items()))
    per = f", {time(exposed / steps)} per step" if steps > 1 else ""
    many = "1 call" if calls == 1 else f"{calls:,} calls"
    says = (
        f"{time(exposed)} of {time(of.communication_ns)} of communication run while no kernel computes{per} "
        f"(most: {shortened(name, 60)}, {many}, {time(ns)}). Start it earlier, on a stream of its own, "
        "during compute that does not need it; send larger buckets (DDP: bucket_cap_mb), fewer bytes (16-bit "
        "gradients, compression), or use faster links. Waits for slower ranks count as communication here: "
        "import the traces of all ranks to tell them apart."
    )
    gain = span / max(1, span - exposed)
    return [Recommendation("Hide communication behind compute", says, gain, "Timeline")]
