"""Compare implementations of one operator on cases: the job behind the Kernels page and ``bench``."""

from __future__ import annotations

import math

from fusescope.core import environment
from fusescope.core.records import DTYPES, BenchSpec

TITLE = "Benchmark"
CACHES = ("warm", "cold", "both")
_POSITIVE = ("budget_s", "min_s", "precision", "case_deadline_s")


def validate(spec: dict) -> dict:
    """A BenchSpec as JSON with every case complete. ValueError or TypeError: the rule, the value given, what
    is supported.

    Keys of BenchSpec; ``op``, ``impls`` and ``cases`` must be given. An implementation that does not run on
    the device is accepted: that is a result with its reason, not a mistake.
    """
    from fusescope import ops

    unknown = set(spec) - set(BenchSpec.__dataclass_fields__)
    if unknown:
        raise ValueError(
            f"a benchmark takes {', '.join(BenchSpec.__dataclass_fields__)}, not {', '.join(sorted(unknown))}"
        )
    missing = [k for k in ("op", "impls", "cases") if not spec.get(k)]
    if missing:
        raise ValueError(
            f"a benchmark names at least one of each: operator, implementation, case; missing: {', '.join(missing)}"
        )
    s = settings(spec)
    op = ops.load(s.op)
    check_dtype(op, s.dtype)
    for impl in (*s.impls, s.baseline):
        ops.describe(s.op, impl, s.device)
    complete = tuple(check_case(op, case) for case in s.cases)
    whole = s.impls if s.baseline in s.impls else (*s.impls, s.baseline)
    return s.to_json() | {"impls": list(whole), "cases": list(complete)}


def settings(spec: dict) -> BenchSpec:
    """The specification with everything checked that does not depend on what is measured; ValueError or
    TypeError."""
    impls, cases = _list("impls", spec["impls"]), _list("cases", spec["cases"])
    baseline = spec.get("baseline") or impls[0]
    for name in ("op", "dtype", "device", "cache"):
        if name in spec and not isinstance(spec[name], str):
            raise TypeError(f"{name} is a name, not {spec[name]!r}")
    if not all(isinstance(i, str) for i in (*impls, baseline)):
        raise TypeError(f"impls is a list of names, and the baseline a name, not {[*impls, baseline]!r}")
    where = check_device(spec.get("device", "cpu"))
    s = BenchSpec.from_json(spec | {"impls": impls, "cases": cases, "baseline": baseline, "device": where})
    if len(set(s.impls)) < len(s.impls):
        raise ValueError(f"every implementation is named once, not {', '.join(s.impls)}")
    if s.cache not in CACHES:
        raise ValueError(f"cache is one of {', '.join(CACHES)}, not {s.cache!r}")
    for name in _POSITIVE:
        value = getattr(s, name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
            raise ValueError(f"{name} is a number above 0, not {value!r}")
    for name, low in (("min_samples", 1), ("seed", 0)):
        value = getattr(s, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < low:
            raise ValueError(f"{name} is a whole number from {low}, not {value!r}")
    return s


def device(spec: dict) -> str | None:
    return spec["device"]


def run(spec: dict, reporter) -> None:
    from fusescope.measure import bench

    bench.run(BenchSpec.from_json(spec), reporter)


def check_dtype(op, dtype: str) -> None:
    """ValueError where the operator does not take the dtype."""
    if dtype not in op.DTYPES:
        known = "" if dtype in DTYPES else f" (dtypes here are {', '.join(DTYPES)})"
        raise ValueError(f"{op.NAME} takes {', '.join(op.DTYPES)}, not {dtype!r}{known}")


def check_device(name: str) -> str:
    """The device's full name ("cuda" is "cuda:0"); ValueError naming the devices there are."""
    there = environment.devices()
    name = "cuda:0" if name == "cuda" else name
    if name not in there:
        why = (
            ""
            if len(there) > 1
            else " (no NVIDIA GPU or driver was found: python -m fusescope doctor says why)"
        )
        raise ValueError(f"there is no device {name!r} here; there is {', '.join(there)}{why}")
    return name


def check_case(op, case) -> dict:
    """The complete case; TypeError where it is no object of parameters, ValueError from the operator
    itself."""
    if not isinstance(case, dict):
        raise TypeError(f"a case of {op.NAME} is an object of parameter and value, not {case!r}")
    return op.validate(case)


def _list(name: str, value) -> list:
    if not isinstance(value, list | tuple):
        raise TypeError(f"{name} is a list, not {value!r}")
    return list(value)
