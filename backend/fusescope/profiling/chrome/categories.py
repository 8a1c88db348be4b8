"""Which table an event of a Chrome trace belongs to.

Categories are those of torch.profiler of any age (Kernel, Operator, Runtime … before 1.11; none at all in the
autograd profiler's traces, where the process is called "CPU functions" or "CUDA functions"). What fits
nowhere else is a range.
"""

from __future__ import annotations

_TABLE_OF = {
    "kernel": "kernels",
    "cpu_op": "operators",
    "operator": "operators",
    "runtime": "launches",
    "cuda_runtime": "launches",
    "cuda_driver": "launches",
    "hip_runtime": "launches",
    "xpu_runtime": "launches",
    "xpu_driver": "launches",
    "mtia_runtime": "launches",
    "privateuse1_runtime": "launches",
    "privateuse1_driver": "launches",
    "gpu_memcpy": "copies",
    "gpu_memset": "copies",
    "memcpy": "copies",
    "memset": "copies",
}
_TABLE_OF_PROCESS = {"CPU functions": "operators", "CUDA functions": "kernels"}


def table_of(e) -> str:
    if e.cat is None:
        return _TABLE_OF_PROCESS.get(str(e.pid), "ranges")
    return table_of_category(e.cat)


def table_of_category(category) -> str:
    return _TABLE_OF.get(str(category).lower(), "ranges")


def direction(name, kind) -> str | None:
    """HtoD, DtoH, DtoD, PtoP, HtoH or "memset", from the kind that AMD traces give or from the name."""
    if isinstance(kind, str) and kind[1:3] == "to":
        return kind
    text = str(name)
    if text.lower().startswith("memset"):
        return "memset"
    return next((d for d in ("HtoD", "DtoH", "DtoD", "PtoP", "HtoH") if d in text), None)
