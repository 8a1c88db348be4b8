"""What stands in the way of building and running here, each with the exact fix: looked at before (``examine``) and after a
failure (``diagnose``). A machine without a GPU is no failure: its CUDA kernels compile, and the CPU kernels run."""

from __future__ import annotations

from backend.core import doctor_build, doctor_tools, toolchain
from backend.core.diagnosis import diagnose
from backend.core.environment import gpus
from backend.core.findings import Finding

__all__ = ["Finding", "diagnose", "examine"]


def examine() -> list[Finding]:
    """Every check in a fixed order, also those that are well. Takes well under a second; runs no compiler but for its version."""
    chain, present = toolchain.detect(), gpus()
    findings = [
        doctor_tools.driver(present),
        doctor_tools.torch(chain, present),
        doctor_tools.packages(),
        doctor_tools.nvcc(chain, present),
        doctor_tools.versions_agree(chain),
        doctor_tools.gxx(chain),
        doctor_tools.gcc_and_gxx(chain),
        doctor_tools.ninja(chain),
        doctor_tools.binutils(),
        doctor_tools.sass(chain),
        doctor_tools.python_headers(),
        *doctor_tools.headers(chain),
        doctor_build.kernels_folder(),
        doctor_build.coverage(chain, present),
        doctor_build.lock(chain),
        doctor_build.cache(chain),
        doctor_build.runs_folder(),
        doctor_build.space(),
        *doctor_build.last_build(chain),
    ]
    return [f for f in findings if f is not None]
