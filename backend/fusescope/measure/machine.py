"""The device and our kernels made ready for a comparison."""

from __future__ import annotations

from typing import Any

import torch

from fusescope import kernels
from fusescope.core.errors import BuildError
from fusescope.core.machine import environment
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


def load_kernels(device: str, reporter: Reporter) -> str | None:
    """Load our kernels; the reason where they cannot be built (what needs none is measured all the same)."""
    try:
        kernels.load(device.split(":")[0])
    except BuildError as e:
        reporter.log(f"our kernels are not measured: {e}\n{e.log}")
        return f"the kernels could not be built: {e}"
    return None


def cache_bytes(facts: dict[str, Any]) -> int | None:
    """Size of the last cache before memory: L2 of a GPU."""
    return facts["l2_bytes"] if facts["device"].startswith("cuda") else facts["llc_bytes"]
