"""Compare implementations of one operator on cases: the job behind the Kernels page and ``bench``."""

from __future__ import annotations

from collections.abc import Callable

from fusescope.analysis import estimate
from fusescope.core.machine import environment, load
from fusescope.core.records import BenchSpec
from fusescope.jobs.spec import comparison
from fusescope.jobs.spec.common import check_dtype
from fusescope.kernels.build import seconds_missing

TITLE = "Benchmark"


def validate(spec: dict) -> dict:
    """A BenchSpec as JSON with every case complete. ValueError: the rule, the value given, what is supported.

    Keys of BenchSpec; ``op``, ``impls`` and ``cases`` must be given. An implementation that does not run on
    the device is accepted: that is a result with its reason, not a mistake.
    """
    from fusescope import ops

    whole = comparison.complete("a benchmark", spec)
    op = ops.load(whole["op"])
    check_dtype(op, whole["dtype"])
    for impl in whole["impls"]:
        ops.describe(whole["op"], impl, whole["device"])
    return whole | {"cases": [op.validate(case) for case in whole["cases"]]}


def name(spec: dict) -> str:
    return comparison.name(spec, "implementation")


def device(spec: dict) -> str | None:
    return spec["device"]


def facts(spec: BenchSpec, missing: Callable[..., float] = seconds_missing) -> estimate.Facts:
    """What an estimate of the comparison goes by; ``missing(device, families=…)``: seconds of building."""
    from fusescope import ops

    impls = dict.fromkeys((*spec.impls, spec.baseline))
    ours = any(ops.describe(spec.op, i, spec.device).kind == "ours" for i in impls)
    module = ops.load(spec.op)
    return estimate.Facts(
        environment.device_name(spec.device),
        [module.cost(case, spec.dtype).size for case in spec.cases],
        {i: ops.compile_seconds(spec.op, (i,), spec.device) for i in impls},
        missing(spec.device, families=(module.FAMILY,)) if ours else 0.0,
        busy=load.crowding(),
        skipping={i for i in impls if ops.skips(spec.op, i)},
    )


def run(spec: dict, reporter) -> None:
    from fusescope.jobs import several
    from fusescope.measure import bench

    if spec["processes"] > 1:
        return several.run("bench", spec, reporter, facts)
    bench.run(BenchSpec.from_json(spec), reporter)
