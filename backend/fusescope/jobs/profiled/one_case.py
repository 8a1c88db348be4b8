"""One implementation on one case: the spec that tracing and sanitizing share, and its single call."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

from fusescope.core.records import short
from fusescope.core.schema import Parameter, complete
from fusescope.jobs.profiled import one_model
from fusescope.jobs.spec.common import DEVICE, check_dtype

PARAMETERS = (
    Parameter("op", "text"),
    Parameter("impl", "text"),
    Parameter("case", "object"),
    Parameter("dtype", "text", "float32"),
    DEVICE,
)


def validate(spec: dict, extra: tuple[Parameter, ...] = ()) -> dict:
    """The complete spec {op, impl, case, dtype, device} and ``extra`` parameters. ValueError in one sentence,
    Unsupported for an implementation that does not run on the device.

    op "model:<name>" with an execution mode as impl is a whole model.
    """
    from fusescope import ops
    from fusescope.core.errors import Unsupported

    whole = complete("this job", (*PARAMETERS, *extra), spec)
    if one_model.is_model(whole["op"]):
        return one_model.validate(whole)
    op = ops.load(whole["op"])
    check_dtype(op, whole["dtype"])
    found = ops.describe(whole["op"], whole["impl"], whole["device"])
    if found.reason:
        raise Unsupported(found.reason)
    return whole | {"case": op.validate(whole["case"])}


def name(spec: dict, kind: str) -> str:
    """ "trace of attention v3_hopper"."""
    return f"{kind} of {spec.get('op', '')} {short(str(spec.get('impl', '')))}"


def prepare(spec: dict) -> Callable[[], object]:
    """A callable that runs one call on fresh inputs; for a kernel of ours the extension is built and loaded
    first. Needs torch."""
    from fusescope import kernels, ops

    if one_model.is_model(spec["op"]):
        return one_model.prepare(spec)
    if ops.describe(spec["op"], spec["impl"], spec["device"]).kind == "ours":
        kernels.load(spec["device"].split(":")[0], (ops.load(spec["op"]).FAMILY,))
    op = ops.load(spec["op"])
    inputs = op.inputs(spec["case"], spec["dtype"], spec["device"], seed=0)
    return ops.make(spec["op"], spec["impl"], inputs)


def synchronize(device: str) -> None:
    """Wait for the device; nothing to wait for on the CPU."""
    if device != "cpu":
        import torch

        torch.cuda.synchronize(device)


def main(arguments: list[str]) -> int:
    """One call of the case in a JSON file, for compute-sanitizer to watch: python -m
    fusescope.jobs.profiled.one_case FILE."""
    spec = json.loads(Path(arguments[0]).read_text())
    prepare(spec)()
    synchronize(spec["device"])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
