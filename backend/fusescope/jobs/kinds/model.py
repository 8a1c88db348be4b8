"""Compare execution modes of a whole model: the job behind the Models page and ``model``."""

from __future__ import annotations

from fusescope.core.records import DTYPES, BenchSpec

TITLE = "Model"
_EXTRA = {"checkpoint": None, "parts": True}


def validate(spec: dict) -> dict:
    """A BenchSpec as JSON with op "model:NAME", execution modes as impls and complete cases; besides
    checkpoint (a folder or None) and parts (whether to see where the time goes). ValueError or TypeError: the rule, the
    value given, what is supported.

    A checkpoint is held against its own config.json here, by the headers of its files. A mode that does not
    run on the device is accepted: that is a result with its reason.
    """
    from fusescope import models
    from fusescope.jobs.kinds import bench
    from fusescope.models.describe import checkpoint

    unknown = set(spec) - set(BenchSpec.__dataclass_fields__) - set(_EXTRA)
    if unknown:
        takes = ", ".join((*BenchSpec.__dataclass_fields__, *_EXTRA))
        raise ValueError(f"a comparison of a model's modes takes {takes}, not {', '.join(sorted(unknown))}")
    missing = [k for k in ("op", "impls", "cases") if not spec.get(k)]
    if missing:
        raise ValueError(
            f"a comparison names a model (op), execution modes (impls) and cases; missing: {', '.join(missing)}"
        )
    if not isinstance(spec["op"], str):
        raise TypeError(f"op is model:NAME, not {spec['op']!r}")
    name, extra = models.named(spec["op"]), {k: spec.get(k, default) for k, default in _EXTRA.items()}
    if not isinstance(extra["parts"], bool):
        raise TypeError(f"parts is true or false, not {extra['parts']!r}")
    folder = extra["checkpoint"] = extra["checkpoint"] or None
    if folder is not None and not isinstance(folder, str):
        raise TypeError(f"checkpoint is the path of a folder, not {folder!r}")
    s = bench.settings(
        {"baseline": "eager", "cache": "warm"} | {k: v for k, v in spec.items() if k not in _EXTRA}
    )
    if s.dtype not in DTYPES:
        raise ValueError(f"{name} takes {', '.join(DTYPES)}, not {s.dtype!r}")
    for mode in (*s.impls, s.baseline):
        models.mode(name, mode, s.device)
    cases = []
    for case in s.cases:
        if not isinstance(case, dict):
            raise TypeError(f"a case of {name} is an object of parameter and value, not {case!r}")
        cases.append(models.validate(name, case, folder))
    if folder is not None:
        checkpoint.examine(name, models.config(name, cases[0], folder), folder)
    whole = s.impls if s.baseline in s.impls else (*s.impls, s.baseline)
    return s.to_json() | {"impls": list(whole), "cases": cases} | extra


def device(spec: dict) -> str | None:
    return spec["device"]


def run(spec: dict, reporter) -> None:
    from fusescope.measure import model

    model.run(spec, reporter)
