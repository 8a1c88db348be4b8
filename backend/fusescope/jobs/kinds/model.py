"""Compare execution modes of a whole model: the job behind the Models page and ``model``."""

from __future__ import annotations

from collections.abc import Callable

from fusescope.analysis import estimate
from fusescope.core.machine import environment, load
from fusescope.core.records import BenchSpec
from fusescope.core.schema import Parameter
from fusescope.jobs.spec import comparison
from fusescope.jobs.spec.common import CHECKPOINT, DTYPE
from fusescope.kernels.build import seconds_missing
from fusescope.models.describe.modes import COMPILES, REFERENCE_S

TITLE = "Model"
PARAMETERS = (CHECKPOINT, Parameter("parts", "bool", True, "time each part of a layer"))
DEFAULTS = {"baseline": "eager", "cache": "warm"}


def validate(spec: dict) -> dict:
    """A BenchSpec as JSON with op "model:NAME", execution modes as impls and complete cases; besides
    checkpoint (a folder or None) and parts (whether to time the parts of a layer). ValueError: the rule, the
    value given, what is supported.

    A checkpoint is compared with its own config.json here, by the headers of its files. A mode that does not
    run on the device is accepted: that is a result with its reason. A model that cannot fit into the device's
    memory is not.
    """
    from fusescope import models
    from fusescope.models.describe import checkpoint

    whole = comparison.complete("a comparison of execution modes", DEFAULTS | spec, PARAMETERS)
    model, folder = models.named(whole["op"]), whole["checkpoint"]
    DTYPE.check(whole["dtype"])
    for mode in whole["impls"]:
        models.mode(model, mode, whole["device"])
    cases = [models.validate(model, case, folder) for case in whole["cases"]]
    for case in cases:
        models.check_memory(model, case, whole["dtype"], whole["device"], folder)
    if folder is not None:
        checkpoint.examine(model, models.config(model, cases[0], folder), folder)
    return whole | {"cases": cases}


def name(spec: dict) -> str:
    from fusescope import models

    model = str(spec.get("op", "")).removeprefix("model:")
    called = {"op": models.title(model)} if models.is_path(model) else {}
    return comparison.name(spec | called, "mode")


def device(spec: dict) -> str | None:
    return spec["device"]


def facts(spec: BenchSpec, missing: Callable[..., float] = seconds_missing) -> estimate.Facts:
    """What an estimate of the comparison goes by; ``missing(device)``: seconds to build all its kernels."""
    from fusescope import models

    model, modes = models.named(spec.op), dict.fromkeys((*spec.impls, spec.baseline))
    ours = any(models.mode(model, m, spec.device).kind == "ours" for m in modes)
    return estimate.Facts(
        environment.device_name(spec.device),
        [models.cost(model, dict(case), spec.dtype).size for case in spec.cases],
        {m: COMPILES.get(m, {}).get(spec.device.split(":")[0], 0.0) for m in modes},
        missing(spec.device) if ours else 0.0,
        REFERENCE_S,
        load.crowding(),
    )


def run(spec: dict, reporter) -> None:
    from fusescope.jobs import several
    from fusescope.measure import model

    if spec["processes"] > 1:
        return several.run("model", spec, reporter, facts)
    model.run(spec, reporter)
