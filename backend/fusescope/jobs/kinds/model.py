"""Compare execution modes of a whole model: the job behind the Models page and ``model``."""

from __future__ import annotations

from fusescope.core.schema import Parameter
from fusescope.jobs.spec import comparison
from fusescope.jobs.spec.common import CHECKPOINT, DTYPE

TITLE = "Model"
PARAMETERS = (CHECKPOINT, Parameter("parts", "bool", True, "time each part of a layer"))
DEFAULTS = {"baseline": "eager", "cache": "warm"}


def validate(spec: dict) -> dict:
    """A BenchSpec as JSON with op "model:NAME", execution modes as impls and complete cases; besides
    checkpoint (a folder or None) and parts (whether to time the parts of a layer). ValueError: the rule, the
    value given, what is supported.

    A checkpoint is compared with its own config.json here, by the headers of its files. A mode that does not
    run on the device is accepted: that is a result with its reason.
    """
    from fusescope import models
    from fusescope.models.describe import checkpoint

    whole = comparison.complete("a comparison of execution modes", DEFAULTS | spec, PARAMETERS)
    model, folder = models.named(whole["op"]), whole["checkpoint"]
    DTYPE.check(whole["dtype"])
    for mode in whole["impls"]:
        models.mode(model, mode, whole["device"])
    cases = [models.validate(model, case, folder) for case in whole["cases"]]
    if folder is not None:
        checkpoint.examine(model, models.config(model, cases[0], folder), folder)
    return whole | {"cases": cases}


def name(spec: dict) -> str:
    return comparison.name(spec, "mode")


def device(spec: dict) -> str | None:
    return spec["device"]


def run(spec: dict, reporter) -> None:
    from fusescope.measure import model

    model.run(spec, reporter)
