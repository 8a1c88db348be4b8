"""One implementation on one case: the spec that tracing and sanitizing share, and its single call."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

from fusescope.jobs.kinds import bench
from fusescope.jobs.profiled import one_model

KEYS = ("op", "impl", "case", "dtype", "device")


def validate(spec: dict, extra: dict) -> dict:
    """The complete spec {op, impl, case, dtype, device} and ``extra`` keys (name: default). ValueError or
    TypeError.

    op "model:<name>" with an execution mode as impl is a whole model.
    """
    from fusescope import ops
    from fusescope.core.errors import Unsupported

    unknown = set(spec) - {*KEYS, *extra}
    if unknown:
        raise ValueError(f"this job takes {', '.join((*KEYS, *extra))}, not {', '.join(sorted(unknown))}")
    missing = [k for k in ("op", "impl", "case") if spec.get(k) is None]
    if missing:
        raise ValueError(f"this job needs {', '.join(missing)}")
    whole = {"dtype": "float32", "device": "cpu"} | extra | {k: v for k, v in spec.items() if v is not None}
    for name in ("op", "impl", "dtype", "device"):
        if not isinstance(whole[name], str):
            raise TypeError(f"{name} is a name, not {whole[name]!r}")
    whole["device"] = bench.check_device(whole["device"])
    if one_model.is_model(whole["op"]):
        return one_model.validate(whole)
    op = ops.load(whole["op"])
    bench.check_dtype(op, whole["dtype"])
    found = ops.describe(whole["op"], whole["impl"], whole["device"])
    if found.reason:
        raise Unsupported(found.reason)
    return whole | {"case": bench.check_case(op, whole["case"])}


def prepare(spec: dict) -> Callable[[], object]:
    """A callable that runs one call on fresh inputs; for a kernel of ours the extension is built and loaded
    first. Needs torch."""
    from fusescope import kernels, ops

    if one_model.is_model(spec["op"]):
        return one_model.prepare(spec)
    if ops.describe(spec["op"], spec["impl"], spec["device"]).kind == "ours":
        kernels.load(spec["device"].split(":")[0])
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
