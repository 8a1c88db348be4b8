"""How exact the execution modes of a model are, module by module, against float64: the job behind the Models
page and `model --accuracy`."""

from __future__ import annotations

from typing import Any

TITLE = "Accuracy of a model"
KEYS = ("model", "case", "entries", "device", "checkpoint", "inside", "seed")
_MOST = 64 << 30  # bytes of scores in float64 that one layer's reference may take


def validate(spec: dict) -> dict:
    """{model, case, entries, device, checkpoint, inside, seed}, complete. ValueError or TypeError.

    entries: [mode, dtype] pairs, each compared with float64 with its own weights. inside: look inside
    attention, too.
    """
    from fusescope import models
    from fusescope.core.records import DTYPES

    whole = complete(spec, KEYS, {"entries": None, "inside": True})
    entries = whole["entries"]
    if not isinstance(entries, list | tuple) or not entries:
        raise ValueError(f"entries is a list of at least one [mode, dtype], not {entries!r}")
    for entry in entries:
        if not isinstance(entry, list | tuple) or len(entry) != 2:
            raise ValueError(f"an entry is [mode, dtype], not {entry!r}")
        models.mode(whole["model"], entry[0], whole["device"])
        if entry[1] not in DTYPES:
            raise ValueError(f"the dtype of a mode is {', '.join(DTYPES)}, not {entry[1]!r}")
    entries = [list(e) for e in entries]
    if any(entries.count(e) > 1 for e in entries):
        raise ValueError(f"every mode and dtype is named once, not {entries}")
    if not isinstance(whole["inside"], bool):
        raise TypeError(f"inside is true or false, not {whole['inside']!r}")
    check_size(whole["case"])
    return whole | {"entries": entries}


def device(spec: dict) -> str | None:
    return spec["device"]


def run(spec: dict, reporter) -> None:
    from fusescope.models.accuracy import job

    job.run(spec, reporter)


def complete(spec: dict, keys: tuple[str, ...], extra: dict[str, Any]) -> dict:
    """The spec with model, case, device, checkpoint and seed complete and checked, and ``extra`` defaults."""
    from fusescope import models
    from fusescope.jobs.kinds import bench

    unknown = set(spec) - set(keys)
    if unknown:
        raise ValueError(f"this job takes {', '.join(keys)}, not {', '.join(sorted(unknown))}")
    whole = {"model": None, "case": {}, "device": "cpu", "checkpoint": None, "seed": 0} | extra
    whole |= {k: v for k, v in spec.items() if v is not None}
    if not isinstance(whole["model"], str):
        raise ValueError(f"model is one of {', '.join(models.names())}, not {whole['model']!r}")
    if not isinstance(whole["case"], dict):
        raise TypeError(f"a case is an object of parameter and value, not {whole['case']!r}")
    if not isinstance(whole["device"], str):
        raise TypeError(f"device is a name, not {whole['device']!r}")
    if whole["checkpoint"] is not None and not isinstance(whole["checkpoint"], str):
        raise TypeError(f"checkpoint is a folder, not {whole['checkpoint']!r}")
    if isinstance(whole["seed"], bool) or not isinstance(whole["seed"], int) or whole["seed"] < 0:
        raise ValueError(f"seed is a whole number from 0, not {whole['seed']!r}")
    models.title(whole["model"])
    return whole | {
        "case": models.validate(whole["model"], whole["case"], whole["checkpoint"]),
        "device": bench.check_device(whole["device"]),
    }


def check_size(case: dict) -> None:
    """ValueError where one layer's scores in float64 would not fit; what is judged does not need the largest
    batch."""
    size = 8 * case["batch"] * case["heads"] * case["seq"] ** 2
    if size > _MOST:
        raise ValueError(
            f"one layer's scores in float64 may take 64 GiB, not {size / (1 << 30):.0f} GiB; choose a smaller batch or seq than "
            f"{case['batch']} and {case['seq']}"
        )
