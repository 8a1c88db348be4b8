"""How exact a model's execution modes are, module by module, against float64: the job behind the Models page
and `model --accuracy`."""

from __future__ import annotations

from typing import Any

from fusescope.core.records import DTYPES
from fusescope.core.schema import Parameter
from fusescope.jobs.spec import model

TITLE = "Accuracy of a model"


def _entries(entries: Any) -> list[list[str]]:
    if not isinstance(entries, list | tuple) or not entries:
        raise ValueError(f"entries must be a list of one or more [mode, dtype], not {entries!r}")
    for entry in entries:
        if not isinstance(entry, list | tuple) or len(entry) != 2:
            raise ValueError(f"an entry must be [mode, dtype], not {entry!r}")
        Parameter("the dtype of an entry", "choice", choices=DTYPES).check(entry[1])
    if len(set(map(tuple, entries))) < len(entries):
        raise ValueError(f"entries must name each mode and dtype once, not {entries}")
    return [list(entry) for entry in entries]


PARAMETERS = (
    Parameter("entries", "any", help="[mode, dtype] pairs", further=_entries),
    Parameter("inside", "bool", True, "look inside attention, too"),
)


def validate(spec: dict) -> dict:
    """{model, case, entries, device, checkpoint, inside, seed}, complete; ValueError in one sentence.

    entries: [mode, dtype] pairs, each compared with float64 on its own weights.
    """
    from fusescope import models

    whole = model.complete(spec, PARAMETERS)
    for mode, dtype in whole["entries"]:
        models.mode(whole["model"], mode, whole["device"])
        models.check_memory(whole["model"], whole["case"], dtype, whole["device"], whole["checkpoint"])
    return whole


def name(spec: dict) -> str:
    return f"accuracy of {spec.get('model', '')}"


def device(spec: dict) -> str | None:
    return spec["device"]


def run(spec: dict, reporter) -> None:
    from fusescope.models.accuracy import job

    job.run(spec, reporter)
