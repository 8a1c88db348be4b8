"""The spec of jobs that look inside one model: the model, its case, its checkpoint."""

from __future__ import annotations

from typing import Any

from fusescope import models
from fusescope.core import schema
from fusescope.core.schema import Parameter
from fusescope.jobs.spec.common import CHECKPOINT, DEVICE, SEED

PARAMETERS = (
    Parameter("model", "text", help="a name such as bert-base"),
    Parameter("case", "object", None),
    DEVICE,
    CHECKPOINT,
    SEED,
)
_MOST = 64 << 30  # bytes of scores in float64 that one layer's reference may take


def complete(spec: dict, extra: tuple[Parameter, ...]) -> dict[str, Any]:
    """The spec with the model's complete case and the ``extra`` parameters; ValueError in one sentence."""
    whole = schema.complete("this job", (*PARAMETERS, *extra), spec)
    case = models.validate(whole["model"], whole["case"] or {}, whole["checkpoint"])
    if case.get("phase") == "generate":
        raise ValueError("a generation is looked into by its parts: phase is prefill or decode, not generate")
    check_size(case)
    return whole | {"case": case}


def check_size(case: dict) -> None:
    """ValueError where one layer's scores in float64 would not fit."""
    size = 8 * case["batch"] * case["heads"] * case["seq"] ** 2
    if size > _MOST:
        raise ValueError(
            f"one layer's scores in float64 may take 64 GiB, not {size / (1 << 30):.0f} GiB; choose a "
            f"smaller batch or seq than {case['batch']} and {case['seq']}"
        )
