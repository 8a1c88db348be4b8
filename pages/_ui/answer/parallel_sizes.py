"""The work that a run on several devices was measured with, in words."""

from __future__ import annotations

from fusescope import models
from fusescope.charts import captions, numbers
from fusescope.core.records import Run


def settings(run: Run) -> str:
    """The sizes and dtype that the times are of: "batch=4, seq=2048, layers=4 of 32, …, float16"."""
    cases = run.spec.get("cases") or ()
    case = dict(cases[0]) if cases else {}
    if "layers" in case:
        case["layers"] = _of_whole(run, "layers")
    return ", ".join(w for w in (captions.case_of(case), str(run.spec.get("dtype") or "")) if w)


def sizes(run: Run, batch: int) -> str:
    """The work in a few words: "4 of 32 layers, 8 sequences of 2,048 tokens"; heads where they are not the
    model's."""
    case = dict(run.spec["cases"][0])
    reduced = [f"{_of_whole(run, key)} {key}" for key in ("layers", "heads") if case.get(key)]
    work = numbers.plural(batch, "sequence") + (f" of {case['seq']:,} tokens" if case.get("seq") else "")
    return ", ".join([*(w for w in reduced if " of " in w), work])


def _of_whole(run: Run, key: str) -> str:
    """A size of the run's case, "4 of 32" where it is not the model's own."""
    value = run.spec["cases"][0][key]
    try:
        whole = getattr(models.config(models.named(str(run.spec.get("op")))), key)
    except (KeyError, ValueError):
        whole = value
    return str(value) if value in (None, whole) else f"{value} of {whole}"
