"""The settings of "What is fastest?" for an operator: boxes for its parameters, made from its description."""

from __future__ import annotations

from typing import Any

from fusescope import ops
from fusescope.charts import captions
from fusescope.core.schema import Parameter
from pages._ui.app import url
from pages._ui.forms import fields, mask_picker, parameters

LENGTHS = 170
"""Pixels of a box with the words for lengths of sequences."""
_FOLLOWS = {"kv_heads": "heads"}
"""What a parameter equals that is left empty."""


def names() -> list[str]:
    """The operators that have boxes of their own here: attention has others."""
    return [name for name in ops.titles() if name != "attention"]


def case(state: url.State, op: str, box: Any) -> dict[str, Any]:
    """What is chosen; parameters without a box may have any value."""
    state.scopes.add(op)
    found: dict[str, Any] = {}
    for p in ops.load(op).PARAMETERS:
        if p.kind == "mask":
            size, start = keys(found["seq"]), str(p.default or "full")
            found[p.name] = mask_picker.line(state, p.name, size, start, box, op, p.help)
        else:
            found[p.name] = _box(state, op, p, box)
    return {name: value for name, value in found.items() if value is not None}


def keys(seq: int) -> int:
    """The length that the defaults of a mask are for; a sequence out of bounds is refused later."""
    return min(max(1, seq), 1 << 20)


def dtypes(op: str) -> tuple[str, ...]:
    """Those that the operator takes."""
    return tuple(ops.load(op).DTYPES)


def _box(state: url.State, op: str, p: Parameter, box: Any) -> Any:
    """None for a parameter without a box, or one that is left empty."""
    label = parameters.label(p)
    scoped = {"scope": op, "box": box, "help": p.help, "width": fields.width(label)}
    if p.kind == "choice":
        return fields.pick(state, p.name, label, p.choices, p.default, **scoped)
    if p.kind == "text" and p.typical:
        if p.name == "lengths":
            scoped |= {"format_func": captions.lengths, "width": LENGTHS}
        return fields.pick(state, p.name, label, p.typical, p.default, **scoped)
    if p.kind == "int" and p.name in _FOLLOWS:
        follows = scoped | {"width": fields.NARROW, "placeholder": _FOLLOWS[p.name]}
        return fields.perhaps(state, p.name, label, p.low, p.high, **follows)
    if p.kind == "int" and p.default is not None:
        return fields.whole(state, p.name, label, p.low, p.high, p.default, **scoped)
    return None
