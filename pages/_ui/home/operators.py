"""The settings of "What is fastest?" for an operator: boxes for its parameters, made from its description."""

from __future__ import annotations

from typing import Any

from fusescope import masks, ops
from fusescope.core.schema import Parameter
from pages._ui.app import url
from pages._ui.forms import fields, parameters

_FOLLOWS = {"kv_heads": "heads"}
"""What a parameter equals that is left empty."""
_NARROW, _WIDE = 96, 145


def names() -> list[str]:
    """The operators that have boxes of their own here: attention has others."""
    return [name for name in ops.names() if name != "attention"]


def case(state: url.State, op: str, box: Any) -> dict[str, Any]:
    """What is chosen; parameters without a box may have any value."""
    state.scopes.add(op)
    found = {p.name: _box(state, op, p, box) for p in ops.load(op).PARAMETERS}
    return {name: value for name, value in found.items() if value is not None}


def dtypes(op: str) -> tuple[str, ...]:
    """Those that the operator takes."""
    return tuple(ops.load(op).DTYPES)


def _box(state: url.State, op: str, p: Parameter, box: Any) -> Any:
    """None for a parameter without a box, or one that is left empty."""
    label, scoped = parameters.label(p), {"scope": op, "box": box, "help": p.help}
    if p.kind == "mask":
        return fields.pick(
            state, p.name, label, masks.names(), _mask(p), width=_WIDE, format_func=_spaced, **scoped
        )
    if p.kind == "choice":
        return fields.pick(state, p.name, label, p.choices, p.default, width=_width(label), **scoped)
    if p.kind == "text" and p.typical:
        return fields.pick(state, p.name, label, p.typical, p.default, width=_width(label), **scoped)
    if p.kind == "int" and p.name in _FOLLOWS:
        follows = {"width": _NARROW, "placeholder": _FOLLOWS[p.name]}
        return fields.perhaps(state, p.name, label, p.low, p.high, **follows, **scoped)
    if p.kind == "int" and p.default is not None:
        return fields.whole(state, p.name, label, p.low, p.high, p.default, width=_width(label), **scoped)
    return None


def _mask(p: Parameter) -> str:
    """The name of the default without its settings: records of one mask differ in these alone."""
    return str(p.default or "full").partition(":")[0]


def _width(label: str) -> int:
    """Pixels for a label with its question mark."""
    return max(_NARROW, 50 + 7 * len(label))


def _spaced(name: str) -> str:
    return name.replace("_", " ")
