"""The device and our kernels made ready for a comparison."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from fusescope import kernels
from fusescope.core.errors import BuildError
from fusescope.core.machine import environment, load
from fusescope.core.reporter import Reporter


def ready(device: str) -> dict[str, Any]:
    """Facts of the machine (core.environment), with the CUDA context made on a GPU. ValueError for a device
    that is not here."""
    facts = environment.collect(device)
    if not device.startswith("cuda"):
        return facts
    torch.cuda.set_device(device)
    torch.cuda.init()
    environment.remember_gpu(torch.cuda.current_device())
    return environment.collect(device)


def load_kernels(
    device: str,
    reporter: Reporter,
    progress: Callable[[int, int, str], None] | None = None,
    only: tuple[str, ...] | None = None,
) -> str | None:
    """Load our kernels, of all families or ``only`` of these, built where they are not; the reason where they
    cannot be (what needs none is measured all the same). ``progress(done, total, what)`` is called while they
    compile."""

    def cancelled() -> bool:
        reporter.check()  # raises Cancelled, which ends the build as a true answer would
        return False

    def say(done: int, total: int, what: str) -> None:
        reporter.progress(0, 0, f"compiling {what}, {done} of {total}")

    try:
        kernels.load(device.split(":")[0], only, reporter.log, cancelled, progress or say)
    except BuildError as e:
        reporter.log(f"our kernels are not measured: {e}\n{e.log}")
        return f"the kernels could not be built: {e}"
    return None


def busy(
    device: str, since: load.Load, wait_s: float, step: Callable[[str], None], reporter: Reporter
) -> None:
    """Say who else used the CPUs ``since`` an earlier reading, before they are measured, after waiting at
    most ``wait_s`` for them to be idle. Other processes on a GPU are in the environment already
    (others_on_gpu)."""
    if device.startswith("cuda"):
        return
    found = load.idle(wait_s, step) if wait_s else load.sentence(since.read(), len(since.cpus))
    reporter.environment(busy=found)
    if found:
        reporter.log(f"before the first measurement {found}: times may be disturbed (--wait-idle S waits)")


def cache_bytes(facts: dict[str, Any]) -> int | None:
    """Size of the last cache before memory: L2 of a GPU."""
    return facts["l2_bytes"] if facts["device"].startswith("cuda") else facts["llc_bytes"]
