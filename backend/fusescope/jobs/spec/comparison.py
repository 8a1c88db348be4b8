"""The spec of a comparison, of an operator's implementations or a model's execution modes: a BenchSpec."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from fusescope.core import schema
from fusescope.core.records import BenchSpec
from fusescope.core.schema import Parameter
from fusescope.core.schema.cases import varying_values, written
from fusescope.jobs.spec.cluster import CLUSTER
from fusescope.jobs.spec.common import SEED, check_device_of

CACHES = ("warm", "cold", "both")


def _distinct(impls: list[str]) -> list[str]:
    if not impls or len(set(impls)) < len(impls):
        raise ValueError(f"impls must name one or more implementations, each once, not {impls}")
    return impls


PARAMETERS = (
    Parameter("op", "text"),
    Parameter("impls", "names", further=_distinct),
    Parameter("cases", "objects"),
    Parameter("baseline", "text", None),
    Parameter("dtype", "text", BenchSpec.dtype),
    Parameter("device", "text", "cpu"),
    Parameter("cache", "choice", BenchSpec.cache, choices=CACHES),
    Parameter("budget_s", "float", BenchSpec.budget_s, above=0),
    Parameter("min_samples", "int", BenchSpec.min_samples, low=1),
    Parameter("min_s", "float", BenchSpec.min_s, above=0),
    Parameter("precision", "float", BenchSpec.precision, above=0),
    Parameter("same_within", "float", BenchSpec.same_within, above=0, high=0.5),
    Parameter("processes", "int", BenchSpec.processes, low=1, high=30),
    SEED,
    Parameter("wait_idle_s", "float", BenchSpec.wait_idle_s, low=0, high=86400),
    Parameter("case_deadline_s", "float", BenchSpec.case_deadline_s, above=0),
    CLUSTER,
)


def complete(who: str, spec: dict, extra: tuple[Parameter, ...] = ()) -> dict[str, Any]:
    """The spec with everything checked that does not depend on what is measured. The baseline, by default the
    first implementation, is among ``impls``."""
    whole = schema.complete(who, (*PARAMETERS, *extra), spec)
    whole["device"] = check_device_of(whole)
    if whole["cluster"] is None:
        del whole["cluster"]  # as specifications were before there were clusters
    baseline, impls = whole["baseline"] or whole["impls"][0], whole["impls"]
    return whole | {"baseline": baseline, "impls": impls if baseline in impls else [*impls, baseline]}


def name(spec: dict, what: str) -> str:
    """ "attention, 5 implementations, seq 512 to 4,096, float16", where ``what`` is "implementation"; a
    user's own are named: "attention, mine.py:fast and 1 other, seq 512, float16"."""
    impls = [str(impl) for impl in spec.get("impls") or ()]
    own = [PurePath(impl).name for impl in impls if ".py:" in impl]
    count = len(impls) - len(own)
    others = f"{count} {what}{'' if count == 1 else 's'}"
    if own:
        others = f" and {count} other{'' if count == 1 else 's'}" if count else ""
    parts = (
        str(spec.get("op", "")).removeprefix("model:"),
        ", ".join(own) + others,
        _cases([dict(case) for case in spec.get("cases") or ()]),
        str(spec.get("dtype", "")),
    )
    return ", ".join(part for part in parts if part)


def _cases(cases: list[dict]) -> str:
    """What differs among the cases, else the first few values of the one case."""
    if changing := varying_values(cases):
        return ", ".join(
            f"{key} {written(values[0])} to {written(values[-1])}"
            if len(values) > 2
            else f"{key} {' and '.join(map(written, values))}"
            for key, values in changing.items()
        )
    known = cases[0] if cases else {}
    shown = [k for k in ("mask", "batch", "seq", "n", "m") if known.get(k) is not None] or list(known)
    return ", ".join(f"{key} {written(known[key])}" for key in shown[:3])
