"""The recorded model most like one that was not recorded: in which sizes the two differ, and its own result,
under its own name."""

from __future__ import annotations

import math
from dataclasses import replace

from fusescope import models
from fusescope.analysis import hardware
from fusescope.charts import numbers
from fusescope.store.answers import Found, Question
from pages._ui.answer import nearest
from pages._ui.home.question import of_model, title
from pages._ui.widgets.text import md

_AS_LARGE = 1.0
"""Doublings of the parameters up to which two models count as equally large: what either reaches of its bound
tells of the other, even on another GPU."""
_CALLED = {
    "parameters": "parameters",
    "layers": "layers",
    "hidden": "hidden size",
    "heads": "heads",
    "kv_heads": "KV heads",
    "head_dim": "head size",
    "ffn": "FFN size",
    "vocab": "vocabulary",
}


def find(question: Question, found: Found | None) -> tuple[Question, Found] | None:
    """(the same question of the most similar model with a record that answers it, that record); None where
    ``found``, of the model itself, is enough, or nothing is recorded of one like it.

    One with nearly as many parameters comes first, whatever was measured of it. Of the others first what was
    measured in this phase on this device, then at the nearest case, then of the nearest sizes: how much of
    its bound a model reaches depends on these in this order."""
    if not question.op.startswith("model:") or (found and _on_such_a_device(found)):
        return None
    asked, like = models.named(question.op), []
    for name in models.relatives(asked):
        of_other = replace(question, op=models.op(name), case=of_model(name, question.case))
        measured = nearest.find(of_other)
        if measured and _on_such_a_device(measured) and "phase" not in measured.differs:
            like.append((_of_another_size(asked, name), measured.away, of_other, measured))
    return min(like, key=lambda one: one[:2])[2:] if like else None  # of equals the first relative


def sentence(question: Question, of_other: Question, found: Found, answer: str) -> str:
    """Markdown that names the other model twice: as another one, and with its ``answer``."""
    asked, other = models.named(question.op), models.named(of_other.op)
    sizes = ", ".join(_apart(size, *pair) for size, pair in models.apart(asked, other).items())
    differs = nearest.differences(found)
    return (
        f"**Another model, {md(title(other))}**, is the most similar one recorded "
        f"({sizes or 'of the same sizes'}). {md(title(other))}{differs and f', {differs}'}: {md(answer)}"
    )


def nothing(question: Question) -> str:
    """What is said where neither the operator or model itself nor one like it has a record."""
    if question.op.startswith("model:"):
        return "Nearest: none. No model with layers of this structure is recorded in this phase."
    return "Nearest: none. This operator is not recorded."


def _of_another_size(asked: str, other: str) -> bool:
    return abs(math.log2(models.total(asked) / models.total(other))) > _AS_LARGE


def _on_such_a_device(found: Found) -> bool:
    """On the device that was asked for, or another GPU: a time of a processor says nothing about one."""
    return "device" not in found.differs or hardware.peaks(found.device_name) is not None


def _apart(size: str, asked: int, other: int) -> str:
    text = _count if size == "parameters" else "{:,}".format
    return f"{_CALLED[size]} {text(other)} instead of {text(asked)}"


def _count(parameters: int) -> str:
    """ "8.03 B", "125 M"."""
    billions = parameters >= 1e9
    return f"{numbers.three(parameters / (1e9 if billions else 1e6))} {'B' if billions else 'M'}"
