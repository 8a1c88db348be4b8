"""Parameters that most specs have, and the check that a device and a dtype are there."""

from __future__ import annotations

from fusescope.core.machine import environment
from fusescope.core.records import DTYPES
from fusescope.core.schema import Parameter
from fusescope.jobs.spec.cluster import is_elsewhere


def check_device(name: str) -> str:
    """The device's full name ("cuda" is "cuda:0"); ValueError naming the devices there are."""
    there = environment.devices()
    name = "cuda:0" if name == "cuda" else name
    if name not in there:
        why = "" if len(there) > 1 else " (no NVIDIA GPU or driver was found: fusescope doctor says why)"
        raise ValueError(f"there is no device {name!r} here; there is {', '.join(there)}{why}")
    return name


def check_dtype(op, dtype: str) -> None:
    """ValueError where the operator does not take the dtype."""
    if dtype not in op.DTYPES:
        known = "" if dtype in DTYPES else f" (dtypes here are {', '.join(DTYPES)})"
        raise ValueError(f"{op.NAME} takes {', '.join(op.DTYPES)}, not {dtype!r}{known}")


def check_device_of(spec: dict) -> str:
    """The device of a spec, here or, where its cluster is elsewhere, as its workers number their own: cpu or
    cuda:0. ValueError naming the devices there are."""
    device = spec["device"]
    if not is_elsewhere(spec):
        return check_device(device)
    if device not in ("cpu", "cuda", "cuda:0"):
        raise ValueError(f"a worker of a cluster has one device, cpu or cuda:0, not {device!r}")
    return "cpu" if device == "cpu" else "cuda:0"


DEVICE = Parameter("device", "text", "cpu", further=check_device)
DTYPE = Parameter("dtype", "choice", "float32", choices=DTYPES)
SEED = Parameter("seed", "int", 0, low=0, high=2**53 - 1)
CHECKPOINT = Parameter("checkpoint", "text", None, "a folder", further=lambda folder: folder or None)
