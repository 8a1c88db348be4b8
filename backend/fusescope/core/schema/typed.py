"""JSON objects as dataclasses and back: every field is checked against its annotation where a file becomes
a record."""

from __future__ import annotations

import copy
import dataclasses
import sys
import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any

from fusescope.core.schema.parameters import REQUIRED, Parameter

_PLAIN = frozenset({str, int, float, bool, type(None)})
_WHOLE = 1 << 63  # what DuckDB, Arrow and NumPy take for an integer
_KINDS: dict[Any, tuple[str, type]] = {
    str: ("text", str),
    int: ("int", int),
    float: ("float", float),
    bool: ("bool", bool),
    Mapping[str, Any]: ("object", dict),
    tuple[str, ...]: ("names", tuple),
    tuple[float, ...]: ("floats", tuple),
    tuple[Mapping[str, Any], ...]: ("objects", tuple),
    tuple[Any, ...]: ("list", tuple),
}
"""Annotation → (kind of parameter, the type whose values need no further look)."""


@dataclasses.dataclass(frozen=True)
class Field:
    """A field as JSON may have it. exact: the type whose values need no further look, within ``bounds`` where
    there are any; nested: the dataclass that an object becomes; null: whether null stands for the default."""

    parameter: Parameter
    exact: type | None
    bounds: tuple[float, float] | None
    nested: type | None
    null: bool


@cache
def fields(cls: type) -> dict[str, Field]:
    """The fields that are given to a dataclass, by name. A field's metadata may hold ``low``, ``high`` and
    ``choices`` of a Parameter; a number with ``low`` is finite, too."""
    hints, found = typing.get_type_hints(cls), {}
    for field in filter(lambda field: field.init, dataclasses.fields(cls)):
        hint, null = _without_none(hints[field.name])
        default = REQUIRED if _is_required(field) else None
        if dataclasses.is_dataclass(hint):
            parameter = Parameter(field.name, "object", default)
            found[field.name] = Field(parameter, None, None, hint, default is None)
            continue
        kind, exact = _KINDS[hint]
        limits = dict(field.metadata)
        if kind == "int":
            limits = {"low": -_WHOLE, "high": _WHOLE - 1} | limits
        if "choices" in limits:
            kind, exact = "choice", None
        parameter = Parameter(field.name, kind, default, **limits)
        bounds = (limits["low"], limits.get("high", sys.float_info.max)) if "low" in limits else None
        found[field.name] = Field(parameter, exact, bounds, None, null or default is None)
    return found


def build(cls: type, data: Mapping[str, Any], within: str = "") -> Any:
    """The dataclass from a JSON object: nested records built, lists made tuples, unknown keys ignored, null
    taken for the default.

    within: where the object is, for the message. ValueError in one sentence: a field that is missing, of
    another type, or out of its bounds.
    """
    if not isinstance(data, Mapping):
        raise ValueError(f"{within or cls.__name__} must be an object of keys and values, not {data!r:.120}")
    known = {}
    for name, field in fields(cls).items():
        value = data.get(name)
        bounds = field.bounds
        if type(value) is field.exact and (bounds is None or bounds[0] <= value <= bounds[1]):
            known[name] = value
        elif value is None:
            if not field.null:
                said = "is null" if name in data else "is missing"
                raise ValueError(f"{_path(within, name)} {said}")
        elif field.nested:
            known[name] = build(field.nested, value, _path(within, name))
        else:
            known[name] = _checked(field.parameter, value, within)
    return cls(**known)


def decode(cls: type, text: str) -> Any:
    """What ``build`` gives of the JSON object in a text, several times as fast; None where msgspec is not
    there or does not take it (NaN, a lone surrogate, whatever is wrong), which ``build`` then decides."""
    try:
        made = _decoder(cls).decode(text)
    except (ImportError, ValueError, RecursionError):  # msgspec's errors are ValueErrors
        return None
    return made if _is_within(made) else None


@cache
def _decoder(cls: type) -> Any:
    import msgspec

    return msgspec.json.Decoder(cls)


def _is_within(made: Any) -> bool:
    """Whether bounded numbers are within their bounds and choices among theirs, which msgspec does not
    know."""
    for name, bounds, choices, nested in _limited(type(made)):
        value = getattr(made, name)
        if value is None:
            continue
        if nested:
            if not _is_within(value):
                return False
        elif (bounds and not bounds[0] <= value <= bounds[1]) or (choices and value not in choices):
            return False
    return True


@cache
def _limited(cls: type) -> list[tuple[str, tuple[float, float] | None, tuple, type | None]]:
    """The fields that ``_is_within`` looks at."""
    every = [(name, f.bounds, f.parameter.choices, f.nested) for name, f in fields(cls).items()]
    return [one for one in every if one[1] or one[2] or (one[3] and _limited(one[3]))]


def plain(value: Any) -> Any:
    """A dataclass as the JSON values it is made of, like dataclasses.asdict, which takes six times as long
    because it looks at every value for what it might be."""
    if type(value) in _PLAIN:
        return value
    if (names := _names(type(value))) is not None:
        return {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {key: plain(one) for key, one in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(plain, value))
    return copy.deepcopy(value)


@cache
def _names(cls: type) -> tuple[str, ...] | None:
    return tuple(f.name for f in dataclasses.fields(cls)) if dataclasses.is_dataclass(cls) else None


def _checked(parameter: Parameter, value: Any, within: str) -> Any:
    """The value as its parameter has it; an empty list is a list of anything."""
    if isinstance(value, list) and not value and parameter.kind in ("names", "floats", "list", "objects"):
        return ()
    try:
        found = parameter.check(value)
    except ValueError as error:
        raise ValueError(f"{within}.{error}" if within else str(error)) from None
    return tuple(found) if isinstance(found, list) else found


def _path(within: str, name: str) -> str:
    return f"{within}.{name}" if within else name


def _is_required(field: dataclasses.Field) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _without_none(hint: Any) -> tuple[Any, bool]:
    """``X | None`` → (X, True)."""
    if isinstance(hint, types.UnionType):
        (one,) = (part for part in typing.get_args(hint) if part is not type(None))
        return one, True
    return hint, False
