"""What pressing Run will cost, before it is pressed."""

from __future__ import annotations

from backend.core.records import BenchSpec

_START_S = {"cpu": 1.5, "cuda": 4.0}  # a process, the libraries, the device's ceilings from the cache
_CHECK_S = {"cpu": 0.3, "cuda": 0.15}  # inputs, three calls and comparisons of one implementation
_MODES = {"cpu": 1, "cuda": 2}
_SHARE = 0.5  # of the budget that a comparison takes until it converges, typically


def seconds(spec: BenchSpec) -> float:
    """Expected wall time in seconds of a comparison, without knowing how fast the kernels are.

    In each mode a case takes at least min_s an implementation and at most budget_s for all of them together (see
    measure/compare.py); in between the noise decides, and half the budget is the guess. Work that a case adds by itself (a
    compiled peer, a huge reference) is not known here.
    """
    kind = spec.device.split(":")[0]
    impls = len(dict.fromkeys((spec.baseline, *spec.impls)))
    modes = _MODES.get(kind, 1) * (2 if spec.cache == "both" else 1)
    sampling = max(impls * spec.min_s, _SHARE * spec.budget_s)
    case = impls * _CHECK_S.get(kind, 0.3) + modes * sampling
    return _START_S.get(kind, 1.5) + len(spec.cases) * case
