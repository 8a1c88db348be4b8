"""What pressing Run will cost, before it is pressed."""

from __future__ import annotations

from fusescope.core.records import BenchSpec

_START_S = {"cpu": 1.5, "cuda": 4.0}  # a process, the libraries, the device's ceilings from the cache
_CHECK_S = {"cpu": 0.3, "cuda": 0.15}  # inputs, three calls and comparisons of one implementation
_COMPILER_S = {
    "cpu": 12.0,
    "cuda": 3.0,
}  # the first compilation of a process: its imports, precompiled headers, Triton's start
_MODES = {"cpu": 1, "cuda": 2}
_SHARE = 0.5  # of the budget that a comparison takes until it converges, typically


def seconds(spec: BenchSpec, compile_s: float = 0.0) -> float:
    """Expected wall time in seconds of a comparison, without knowing how fast the kernels are.

    In each mode a case takes at least min_s per implementation and at most budget_s for all of them together
    (see measure/compare.py); in between the noise decides, and half the budget is the estimate.
    ``compile_s``: seconds per case that its implementations spend in a compiler (ops.compile_seconds), to
    which the compiler's start is added; a case compiled before takes less. The time of a large reference is
    not included.
    """
    kind = spec.device.split(":")[0]
    impls = len(dict.fromkeys((spec.baseline, *spec.impls)))
    modes = _MODES.get(kind, 1) * (2 if spec.cache == "both" else 1)
    sampling = max(impls * spec.min_s, _SHARE * spec.budget_s)
    case = impls * _CHECK_S.get(kind, 0.3) + modes * sampling
    start = _START_S.get(kind, 1.5) + (_COMPILER_S.get(kind, 12.0) if compile_s else 0.0)
    return start + len(spec.cases) * (case + compile_s)
