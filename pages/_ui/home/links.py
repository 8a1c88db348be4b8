"""Where a question leads: to the page that measures it with all its settings, or to the run that answers
it."""

from __future__ import annotations

from fusescope import models
from fusescope.store.answers import Found, Question
from pages._ui.answer import nearest
from pages._ui.app import device

_OF_MODEL = ("heads", "head_dim", "layers")
"""Sizes that a whole model sets itself."""


def page(question: Question) -> str:
    """The file of the page."""
    return "pages/models.py" if _is_model(question) else "pages/kernels.py"


def form(question: Question) -> dict[str, str]:
    """The query that fills the page's form: subject, case, dtype, and the device: one of this machine, or the
    one whose recorded runs are shown meanwhile."""
    hidden = _OF_MODEL if _is_model(question) else ()
    settings = {k: str(v) for k, v in question.case.items() if k not in hidden}
    return _about(question) | settings | {"dtype": str(question.dtype)} | _device(question.device_name)


def answer(question: Question, found: Found, over: str) -> dict[str, str]:
    """The query that shows ``found``, compared with ``over``. Its own settings fill the form where it is what
    was asked; else those of the question do, and the page says what differs."""
    case = nearest.case_name(found)
    query = form(question) if found.differs else _about(question)
    return query | {"run": found.run} | ({"case": case} if case else {}) | ({"over": over} if over else {})


def _is_model(question: Question) -> bool:
    return question.op.startswith("model:")


def _about(question: Question) -> dict[str, str]:
    return {"model": models.named(question.op)} if _is_model(question) else {"op": question.op}


def _device(name: str | None) -> dict[str, str]:
    known = sorted(device.devices(), key=lambda one: one != device.current())  # of equals the one in use
    here = next((one for one in known if device.facts(one).get("device_name", one) == name), None)
    return {"device": here} if here else {"recorded_on": name} if name else {}
