"""The settings of "What is fastest?": an operator or a model, its sizes, lengths, mask and device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from fusescope import masks, models, ops
from fusescope.analysis import hardware
from fusescope.charts import captions
from fusescope.core.records import DTYPES
from fusescope.store.answers import Question
from pages._ui.app import device, run_data, url
from pages._ui.forms import fields, mask_picker
from pages._ui.home import operators
from pages._ui.widgets import told
from pages._ui.widgets.text import device_text, md

ATTENTION = "attention"
_FULL, _PADDED = "full", "padded"
_LENGTHS = {_FULL: captions.lengths("full"), _PADDED: captions.lengths("drawn")}
_HEADS = {"12 × 64": (12, 64), "16 × 64": (16, 64), "32 × 128": (32, 128)}
_MODEL, _OPERATOR = 165, 225
"""Pixels of the first box: titles of operators are longer, and their line is not as full."""


@dataclass(frozen=True)
class Asked:
    """The question as queries of the records: for an operator, or for a model and the attention in it."""

    about: str
    dtype: str
    device_name: str
    attention: Question | None = None
    model: Question | None = None
    operator: Question | None = None


def draw(state: url.State) -> Asked:
    """One line of controls, kept in the URL."""
    names = [ATTENTION, *models.names(), *operators.names()]
    row = st.container(horizontal=True, vertical_alignment="bottom", gap="small", key="question")
    key = fields.seeded(state, "about", names, "bert-base")
    width = _OPERATOR if st.session_state[key] in operators.names() else _MODEL
    about = _pick(row, state, "about", "What is fastest for", names, "bert-base", width, title)
    if about in operators.names():
        return _of_operator(state, about, row)
    phases = () if about == ATTENTION else models.family(about).PHASES
    usual = "decode" if "decode" in phases else next(iter(phases), None)  # tokens per second
    phase = _pick(row, state, "phase", "phase", list(phases), usual, 110) if phases else None
    batch = fields.whole(state, "batch", "batch", 1, 1 << 16, 16, box=row, width=78)
    usual, scope = _length(about)
    state.scopes.add(scope)
    length = "context" if phase == "decode" else "sequence"
    seq = fields.whole(state, "seq", length, 1, 1 << 20, usual, scope, box=row, width=90)
    wide = operators.LENGTHS
    lengths = _pick(
        row, state, "lengths", "lengths", list(_LENGTHS), _FULL, wide, _LENGTHS.get, help=_LENGTHS_HELP
    )
    if about == ATTENTION:
        heads = _pick(row, state, "heads", "heads × size", list(_HEADS), "12 × 64", 105)
        sizes = dict(zip(("heads", "head_dim"), _HEADS[heads], strict=True))
    else:
        config = models.config(about)
        sizes = {"heads": config.heads, "head_dim": config.head_dim}
        if config.kv_heads not in (0, config.heads):
            sizes["kv_heads"] = config.kv_heads
    case = {"batch": batch, "seq": seq} | sizes
    usual = "causal" if about != ATTENTION and models.kind(about) == "decoder" else "full"
    case["mask"] = mask_picker.line(state, f"mask-{usual}", operators.keys(seq), usual, row)
    op = ATTENTION if about == ATTENTION else models.op(about)
    dtype, name = _where(state, row, DTYPES, op, about)
    model = None
    if about != ATTENTION:
        own = {"lengths": "fixed" if lengths == _FULL else "uniform"} | ({"phase": phase} if phase else {})
        model = Question(models.op(about), of_model(about, case) | own, dtype, name)
    if phase == "decode":
        attention = _of_decoding(case, lengths, dtype, name)
    else:
        attention = _of_attention(case, lengths, dtype, name)
    return Asked(about, dtype, name, attention, model)


def _where(state: url.State, row, dtypes: Sequence[str], op: str, about: str) -> tuple[str, str]:
    """dtype and device; until another one is chosen, the device is one on which ``op`` was measured."""
    dtype = _pick(row, state, "dtype", "dtype", dtypes, "float16" if "float16" in dtypes else dtypes[0], 110)
    known = devices()
    key, before, usual = state.key("on"), state.key("on/usual"), _usual(known, op)
    if key in st.session_state and st.session_state[key] == st.session_state.get(before):
        told.tell(key, usual)
    st.session_state[before] = usual
    name = _pick(row, state, "on", "device", known, usual, 160, _brief)
    if name == usual and usual != (first := _first(known)):
        there, here = md(device_text(first)), md(device_text(usual))
        st.caption(f"{md(title(about))} was not measured on {there}: the device is {here}.")
    return dtype, name


def _of_operator(state: url.State, op: str, row) -> Asked:
    case = operators.case(state, op, row)
    dtype, name = _where(state, row, operators.dtypes(op), op, op)
    return Asked(op, dtype, name, operator=Question(op, case, dtype, name))


_LENGTHS_HELP = (
    "unequal: evenly spread from 0.2 of the longest to it, mean 0.6; attention then runs on packed sequences"
)


def devices() -> list[str]:
    """Names of the devices with a comparison, this machine's chosen one first."""
    here = str(device.facts(device.current()).get("device_name") or device.current())
    return list(dict.fromkeys([here, *(name for _, name in run_data.measured())]))


def _length(about: str) -> tuple[int, str]:
    """(the sequence to begin with, the scope of its box): a model of images has its own, and keeps it."""
    own = about != ATTENTION and models.config(about).patch
    if not own:
        return 512, ""
    return next(p.default for p in models.parameters(about) if p.name == "seq"), about


def _usual(known: list[str], op: str) -> str:
    """The GPU of this machine where anything was measured on one like it; else the preferred one, or another
    GPU on which ``op`` was measured. A processor's few results say little about attention, and would hide
    what a visitor comes for."""
    if (first := _first(known)) == known[0]:
        return first
    others = [name for subject, name in run_data.measured() if subject == op and name != known[0]]
    found = [name for name in others if hardware.peaks(name)]
    return first if first in found or not found else found[0]


def _first(known: list[str]) -> str:
    """The device that a question begins with, whatever it is about."""
    mine = device.is_gpu() and any(name == known[0] for _, name in run_data.measured())
    return known[0] if mine or device.QUOTED not in known else device.QUOTED


def _of_attention(case: Mapping[str, Any], lengths: str, dtype: str, name: str) -> Question:
    if lengths == _FULL:
        return Question(ATTENTION, case, dtype, name)
    packed = {k: v for k, v in case.items() if k != "mask"} | {"lengths": "drawn"}
    packed["causal"] = "yes" if case["mask"] == "causal" else "no"
    if case["mask"].startswith("sliding_window"):
        packed |= masks.parse(case["mask"]).resolved(case["seq"]).values
    elif case["mask"] not in ("full", "causal"):  # packed sequences take no other; so none was measured
        packed["mask"] = case["mask"]
    return Question("attention_varlen", packed, dtype, name)


def _of_decoding(case: Mapping[str, Any], lengths: str, dtype: str, name: str) -> Question | None:
    """One further token over a cache of ``seq`` keys; none under a mask, which decoding has no kernel for."""
    if case["mask"] != "causal":
        return None
    own = {k: v for k, v in case.items() if k not in ("mask", "seq")} | {"seq_max": case["seq"]}
    return Question(
        "attention_decode", own | {"lengths": "full" if lengths == _FULL else "drawn"}, dtype, name
    )


def of_model(about: str, case: Mapping[str, Any]) -> dict[str, Any]:
    """The case with the sizes of the model itself."""
    config = models.config(about)
    own = {"heads": config.heads, "head_dim": config.head_dim, "layers": config.layers}
    return {k: v for k, v in case.items() if k != "kv_heads"} | own


def _pick(box, state, name, label, options, default, width, shown=str, **settings):
    return fields.pick(
        state, name, label, options, default, box=box, width=width, format_func=shown, **settings
    )


def title(about: str) -> str:
    """The subject of the question, as short as the box: "ViT large"."""
    if about == ATTENTION or about in operators.names():
        return ops.load(about).TITLE
    return models.title(about).partition(",")[0]


def _brief(name: str) -> str:
    """A device's name as short as the box: "H100 80GB HBM3"."""
    return device_text(name).removeprefix("NVIDIA ")
