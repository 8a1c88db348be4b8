"""Compare implementations of one operator on cases: the job behind the Kernels page and ``bench``."""

from __future__ import annotations

from fusescope.core.records import BenchSpec
from fusescope.jobs.spec import comparison
from fusescope.jobs.spec.common import check_dtype

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


def run(spec: dict, reporter) -> None:
    from fusescope.measure import bench

    bench.run(BenchSpec.from_json(spec), reporter)
