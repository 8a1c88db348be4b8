"""Widgets for an operator's parameters, made from its description."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import streamlit as st

from fusescope.core.schema import Parameter
from pages._ui.app import url
from pages._ui.forms import fields, mask_picker

_NONE = "none"
_SHORT = {"seq": "sequence", "seq_k": "keys (seq_k)", "kv_heads": "KV heads", "head_dim": "head size"}
_SIZE = 512  # keys, for the defaults of a mask, until the sequence's widget has been drawn


def label(p: Parameter) -> str:
    """What a parameter is called on a page."""
    return _SHORT.get(p.name, p.name.replace("_", " "))


def sweep(state: url.State, op: str, parameters: tuple[Parameter, ...]) -> str | None:
    """The parameter to sweep over, None for a single case."""
    shown = {_NONE: _NONE} | {p.name: label(p) for p in parameters if p.sweep}
    if len(shown) == 1:
        return None
    chosen = fields.pick(
        state,
        "sweep",
        "Sweep",
        shown,
        _NONE,
        op,
        format_func=shown.get,
        help="Several values of one parameter in one run",
    )
    return None if chosen == _NONE else chosen


def draw(
    state: url.State,
    op: str,
    parameters: tuple[Parameter, ...],
    swept: str | None,
    picture: Callable = lambda place: None,
    below: Callable[[str], None] = lambda name: None,
) -> dict[str, list[Any]]:
    """One widget per parameter. Returns {name: values}: one value each, several for the swept one; a derived
    one that is left empty is absent. ``picture`` is given the place of a mask's picture; ``below`` is called
    with the name of each parameter once its widget is drawn."""
    values: dict[str, list[Any]] = {}
    derived = [p for p in parameters if p.kind == "int" and p.default is None and p.name != swept]
    rare = derived + [p for p in parameters if p.kind in ("choice", "text", "float") and p.name != swept]
    for p in sorted((p for p in parameters if p not in rare), key=lambda p: p.kind != "mask"):
        values |= _one(state, op, p, p.name == swept, picture)
        below(p.name)
    if rare:
        changed = any(p.name in state.query for p in rare)
        with st.expander(", ".join(label(p) for p in rare), expanded=changed):
            for p in rare:
                values |= _derived(state, op, p) if p in derived else _one(state, op, p, False, picture)
    return values


def _one(state: url.State, op: str, p: Parameter, swept: bool, picture: Callable) -> dict[str, list[Any]]:
    if p.kind == "mask":
        home = f"{state.page}/{op}"
        size = st.session_state.get(f"{home}/seq_k") or st.session_state.get(f"{home}/seq") or _SIZE
        start = str(p.default or "full")
        text, place = mask_picker.choose(state, p.name, size, start, folded=True, help=p.help)
        if text is None:
            raise ValueError("choose the file that holds the mask")
        picture(place)
        return {p.name: [text]}
    if swept:
        return {p.name: _several(state, op, p)}
    if p.kind == "int":
        return {p.name: [_whole(state, op, p)]}
    if p.kind == "choice":
        value = fields.pick(state, p.name, label(p), p.choices, p.default, op, help=p.help)
    else:
        value = fields.text(state, p.name, label(p), op, default=str(p.default or ""), help=p.help)
    return {p.name: [value]} if value not in ("", None) else {}


def _whole(state: url.State, op: str, p: Parameter) -> int:
    if not p.typical:
        return fields.whole(state, p.name, label(p), p.low, p.high, p.default, op, help=p.help)
    key = state.seed(p.name, p.default, url.reader(p), op)
    value, good = fields.slider(state, label(p), key, p, place=state.key(p.name), help=p.help)
    if good:
        state.keep(p.name, value, p.default)
    return value


def _several(state: url.State, op: str, p: Parameter) -> list[int]:
    """The values of the swept parameter, typical ones offered, any other typed."""
    start = [str(t) for t in p.typical if t >= (p.default or 0)][:4] or [str(p.default)]
    one = url.whole(p.low, p.high)
    key = state.seed(f"{p.name}s", start, lambda text: [str(one(t)) for t in text.split(",")], op)
    offered = list(dict.fromkeys([*map(str, p.typical), *st.session_state[key]]))
    help_text = f"{p.help}. Type a number to add it."
    chosen = st.multiselect(f"{label(p)} values", offered, key=key, accept_new_options=True, help=help_text)
    state.keep(f"{p.name}s", ",".join(chosen), ",".join(start))
    if not chosen:
        raise ValueError(f"a sweep over {p.name} needs at least one value")
    found = set()
    for text in chosen:
        try:
            found.add(one(text))
        except ValueError as error:
            raise ValueError(f"{p.name} = {text!r} cannot be swept: {error}") from None
    return sorted(found)


def _derived(state: url.State, op: str, p: Parameter) -> dict[str, list[Any]]:
    absent = p.default_help or "derived"
    value = fields.perhaps(state, p.name, label(p), p.low, p.high, op, help=p.help, placeholder=absent)
    return {} if value is None else {p.name: [value]}
