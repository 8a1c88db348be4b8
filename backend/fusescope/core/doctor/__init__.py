"""What prevents building and running here, each with the exact fix: checked before
(``examine``) and after a failure (``diagnose``). A machine without a GPU is no failure: its CUDA kernels
compile, and the CPU kernels run."""

from __future__ import annotations

from fusescope.core.doctor import build, running, tools
from fusescope.core.doctor.diagnosis import diagnose
from fusescope.core.doctor.findings import Finding
from fusescope.core.machine import toolchain
from fusescope.core.machine.environment import gpus

__all__ = ["Finding", "diagnose", "examine"]


def examine() -> list[Finding]:
    """Every check in a fixed order, also those that are well. Takes well under a second; runs no compiler but
    for its version."""
    chain, present = toolchain.detect(), gpus()
    findings = [
        tools.driver(present),
        tools.torch(chain, present),
        tools.packages(),
        tools.nvcc(chain, present),
        tools.versions_agree(chain),
        tools.gxx(chain),
        tools.gcc_and_gxx(chain),
        tools.ninja(chain),
        tools.binutils(),
        tools.sass(chain),
        tools.python_headers(),
        *tools.headers(chain),
        build.kernels_folder(),
        build.coverage(chain, present),
        build.lock(chain),
        build.cache(chain),
        build.runs_folder(),
        build.space(),
        running.locks(),
        *running.warm_parents(),
        *build.last_build(chain),
    ]
    return [f for f in findings if f is not None]
