"""The controls of the Scaling page: a model, its case, attentions, layouts, and what pressing Run will
cost."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import streamlit as st

from fusescope import models
from fusescope.charts import numbers
from fusescope.charts.numbers import plural
from fusescope.core.errors import RunError
from fusescope.core.records import DTYPES
from fusescope.jobs import kinds, submit
from fusescope.models.describe import layouts
from pages._ui.app import device, run_data, url
from pages._ui.forms import fields, parameters, run_panel
from pages._ui.widgets.text import md

_SHOWN = ("batch", "seq", "layers", "heads", "head_dim", "mask")  # of one length, a whole prompt
_BUDGET_S = 5.0
_BATCH = 8  # at first: one that replicas and micro-batches divide
_NO_SETTINGS = {"run", "view", "device", "scaling"}
"""What a link may say besides a run without choosing settings of the form."""


COMPARED = {
    "op": "model",
    "impls": "layouts",
    "cases": "sizes",
    "baseline": "baseline",
    "dtype": "dtype",
    "device": "device",
    "micro_batches": "micro-batches",
}
"""What makes a result that of these settings, and what each is called."""


@dataclass
class Choice:
    """What is chosen; ``spec`` is complete, or None with the reason under Run. ``asked``: the same as
    it is in the form, also where it cannot run here."""

    model: str
    dtype: str
    case: dict[str, Any] = field(default_factory=dict)
    asked: dict[str, Any] | None = None
    spec: dict[str, Any] | None = None
    pressed: bool = False

    @property
    def op(self) -> str:
        return models.op(self.model)


def draw(state: url.State) -> Choice:
    """Draw the form."""
    fill(state)
    problems: list[str] = []
    names = [n for n in models.names() if hasattr(models.family(n), "PARALLEL")]
    default = "gpt2" if "gpt2" in names else names[0]
    wanted = state.query.get("model", default)
    state.scopes.add(wanted if wanted in names else default)
    top = st.container()
    left, right = st.columns([3, 2], gap="small", wrap=False)
    name = fields.pick(state, "model", "model", names, default, box=left, format_func=models.title)
    usual = "float16" if device.is_gpu() else "float32"
    choice = Choice(name, fields.pick(state, "dtype", "dtype", DTYPES, usual, name, box=right))
    attentions = _attentions(state)
    here = sum(d != "cpu" for d in device.devices()) if device.is_gpu() else 2
    text = fields.text(
        state,
        "layouts",
        "layouts",
        default=",".join(f"{word}{here}" for word in ("tp", "pp", "dp")) if here > 1 else "",
        help="tp: tensor parallel, pp: pipeline stages, dp: data parallel, joined by dots; several with "
        "commas: tp2,pp2,tp2.dp2. One device is always measured beside them.",
    )
    left, right = st.columns(2, gap="small", vertical_alignment="bottom")
    pieces = fields.whole(
        state,
        "micro_batches",
        "micro-batches",
        1,
        1024,
        2,
        box=left,
        help="Pieces that a pipeline cuts the batch of a replica into: more pieces, smaller bubbles",
    )
    weak = fields.yes(
        state, "weak", "weak too", box=right, help="Also with a batch that grows with the devices"
    )
    traced = fields.text(
        state,
        "trace",
        "trace of",
        default="",
        help="A layout, such as tp2, some calls of which are traced on every rank: one profile, opened from "
        "the result. Empty: none.",
    )
    with run_panel.collect(problems):
        choice.case = _case(state, name)
    with run_panel.collect(problems):
        fields.refuse(state)
    cost = ""
    if choice.case and not problems:
        with run_panel.collect(problems):
            choice.asked = _asked(choice, attentions, text, pieces, weak, traced)
    if here < 2 and not text:  # nothing was chosen that is wrong
        with top:
            st.info(
                "One GPU is here, and layouts need several. Choose the CPU in the sidebar, where each "
                "process is a rank, or read the recorded run."
            )
    elif choice.asked:
        with run_panel.collect(problems):
            choice.spec = submit.validate("parallel", choice.asked)
            cost = _cost(choice.spec)
        if choice.spec is None and _is_of_run(state, choice.asked):  # chosen by nobody here
            with top:
                st.info(md(f"These settings of the run cannot be measured here. {problems.pop()}."))
    with top:
        choice.pressed = run_panel.draw("scaling/run", problems, cost)
    return choice


def _is_of_run(state: url.State, asked: dict[str, Any]) -> bool:
    """Whether these are the settings of the run in the URL."""
    try:
        spec = run_data.read(state.query["run"]).spec
    except (RunError, KeyError):
        return False
    return all(spec.get(key) == asked[key] for key in COMPARED if key != "device")


def fill(state: url.State) -> None:
    """Take the settings of the run that a link opens into the form, where the link has none of its own."""
    if not state.opened or "run" not in state.query or set(state.query) - _NO_SETTINGS:
        return
    try:
        run = run_data.read(state.query["run"])
        if run.kind != "parallel":
            return
        known = [layouts.named(i) for i in run.spec["impls"]]
        case, name = dict(run.spec["cases"][0]), models.named(run.spec["op"])
        traced = str(layouts.named(run.spec["trace"])[1]) if run.spec.get("trace") else ""
    except (RunError, ValueError, KeyError, IndexError, TypeError):
        return  # what cannot be shown is said elsewhere
    query = {
        "model": name,
        "dtype": run.spec.get("dtype"),
        "attention": ",".join(dict.fromkeys(a for a, _ in known)),
        "layouts": ",".join(dict.fromkeys(str(w) for _, w in known if w.ranks > 1)),
        "micro_batches": run.spec.get("micro_batches"),
        "weak": "yes" if run.spec.get("weak") else "",
        "trace": traced,
    }
    query |= {p.name: case.get(p.name) for p in models.parameters(name) if p.name in _SHOWN}
    state.query |= {k: str(v) for k, v in query.items() if v not in (None, "")}


def _attentions(state: url.State) -> list[str]:
    key = state.seed(
        "attention", ["sdpa"], lambda text: [a for a in text.split(",") if a in layouts.ATTENTIONS]
    )
    chosen = st.multiselect(
        "attention",
        layouts.ATTENTIONS,
        key=key,
        help="sdpa: PyTorch's. fusescope: our kernels. fused: all of our encoder (BERT; no pipeline).",
    )
    state.keep("attention", ",".join(chosen), "sdpa")
    return chosen


def _case(state: url.State, name: str) -> dict[str, Any]:
    shown = tuple(
        replace(p, default=_BATCH) if p.name == "batch" else p
        for p in models.parameters(name)
        if p.name in _SHOWN
    )
    values = parameters.draw(state, name, shown, None)
    return models.validate(name, {k: v[0] for k, v in values.items()})


def _asked(
    choice: Choice, attentions: list[str], text: str, pieces: int, weak: bool, traced: str
) -> dict[str, Any]:
    if not attentions:
        raise ValueError("choose at least one attention")
    wanted = [layouts.parse(piece.strip()) for piece in text.split(",") if piece.strip()]
    return {
        "op": choice.op,
        "impls": layouts.crossed(attentions, wanted),
        "cases": [choice.case],
        "baseline": attentions[0],
        "dtype": choice.dtype,
        "device": device.current(),
        "micro_batches": pieces,
        "weak": weak,
        "trace": layouts.implementation(attentions[0], layouts.parse(traced)) if traced else None,
        "budget_s": _BUDGET_S,
    }


def _cost(spec: dict[str, Any]) -> str:
    """What is measured, on how many processes, and the most that sampling may take."""
    ranks = kinds.load("parallel").ranks(spec)
    count = len(spec["impls"]) * (2 if spec["weak"] else 1)
    name = device.facts(spec["device"]).get("device_name") or spec["device"]
    return (
        f"{plural(len(spec['impls']), 'layout')} on {plural(ranks, 'rank')} of {name}, up to "
        f"{numbers.rough_seconds(count * _BUDGET_S + 20)} of starting and sampling"
    )
