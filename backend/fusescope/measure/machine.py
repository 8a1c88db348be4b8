"""The device and our kernels made ready for a comparison."""

from __future__ import annotations

import time
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


class Idle:
    """Waits for idle CPUs each time before samples are taken, at most ``wait_s`` seconds in all, and says in
    the run's environment who else used them before the first. On a GPU nothing: other processes on it are in
    the environment already (others_on_gpu)."""

    def __init__(self, device: str, since: load.Load, wait_s: float, reporter: Reporter):
        self._on_cpu, self._since, self._left_s = not device.startswith("cuda"), since, wait_s
        self._reporter, self._said = reporter, False

    def wait(self, step: Callable[[str], None]) -> None:
        """``step(sentence)`` is called while others keep the CPUs busy (it may raise Cancelled)."""
        if not self._on_cpu or (self._said and self._left_s <= 0):
            return
        found = load.sentence(self._since.read(), len(self._since.cpus))
        if self._left_s > 0 and (found or not self._said):
            begun = time.monotonic()
            found = load.idle(self._left_s, step)
            self._left_s -= time.monotonic() - begun
        if not self._said:
            self._reporter.environment(busy=found)
        if found:
            self._reporter.log(f"before a measurement {found}: times may be disturbed (--wait-idle S waits)")
        self._said = True


def cache_bytes(facts: dict[str, Any]) -> int | None:
    """Size of the last cache before memory: L2 of a GPU."""
    return facts["l2_bytes"] if facts["device"].startswith("cuda") else facts["llc_bytes"]
