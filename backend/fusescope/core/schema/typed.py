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
    there are any; nested: the dataclass that an object becomes; null: whether null means the default;
    item: of each value of a mapping or a list."""

    parameter: Parameter
    exact: type | None
    bounds: tuple[float, float] | None
    nested: type | None
    null: bool
    item: Field | None = None


@cache
def fields(cls: type) -> dict[str, Field]:
    """The fields that are given to a dataclass, by name. A field's metadata may hold ``low``, ``high`` and
    ``choices`` of a Parameter, of a mapping or a list those of its values; a number with ``low`` is finite,
    too."""
    hints, given = typing.get_type_hints(cls), filter(lambda field: field.init, dataclasses.fields(cls))
    return {
        f.name: _field(f.name, hints[f.name], REQUIRED if _is_required(f) else None, dict(f.metadata))
        for f in given
    }


def _field(name: str, hint: Any, default: Any, limits: dict[str, Any]) -> Field:
    hint, null = _without_none(hint)
    null = null or default is None
    if dataclasses.is_dataclass(hint):
        return Field(Parameter(name, "object", default), None, None, hint, null)
    if hint not in _KINDS:  # Mapping[str, X] or tuple[X, ...]
        one = next(arg for arg in typing.get_args(hint) if arg not in (str, ...))
        kind = "list" if typing.get_origin(hint) is tuple else "object"
        item = _field(name, one, REQUIRED, limits)
        return Field(Parameter(name, kind, default), None, None, None, null, item)
    kind, exact = _KINDS[hint]
    if kind == "int":
        limits = {"low": -_WHOLE, "high": _WHOLE - 1} | limits
    if "choices" in limits:
        kind, exact = "choice", None
    bounds = (limits["low"], limits.get("high", sys.float_info.max)) if "low" in limits else None
    return Field(Parameter(name, kind, default, **limits), exact, bounds, None, null)


def build(cls: type, data: Mapping[str, Any], within: str = "") -> Any:
    """The dataclass from a JSON object: nested records built, lists made tuples, unknown keys ignored, null
    taken for the default, or for itself where there is none and it may be null.

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
            if field.parameter.default is REQUIRED:
                known[name] = None
        else:
            known[name] = _value(field, value, within, name)
    return cls(**known)


def _value(field: Field, value: Any, within: str, name: str) -> Any:
    """The value of a field, or of one of its items, by its name."""
    if field.nested:
        return build(field.nested, value, _path(within, name))
    if field.item is None:
        named = field.parameter
        return _checked(named if named.name == name else dataclasses.replace(named, name=name), value, within)
    whole, at = _checked(field.parameter, value, within), _path(within, name)
    if isinstance(whole, Mapping):
        return {key: _item(field.item, one, at, key) for key, one in whole.items()}
    return tuple(_item(field.item, one, at, str(place)) for place, one in enumerate(whole))


def _item(field: Field, value: Any, within: str, name: str) -> Any:
    if value is None:
        if not field.null:
            raise ValueError(f"{_path(within, name)} is null")
        return None
    return _value(field, value, within, name)


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
    for name, field in _limited(type(made)):  # a loop: a cluster's records pass here, thousands a second
        value = getattr(made, name)
        if value is not None and not _fits(value, field):
            return False
    return True


def _fits(value: Any, field: Field) -> bool:
    if field.nested:
        return _is_within(value)
    if field.item:
        values = value.values() if isinstance(value, Mapping) else value
        return all(one is None or _fits(one, field.item) for one in values)
    bounds, choices = field.bounds, field.parameter.choices
    return (not bounds or bounds[0] <= value <= bounds[1]) and (not choices or value in choices)


@cache
def _limited(cls: type) -> list[tuple[str, Field]]:
    """The fields that ``_is_within`` looks at."""
    return [(name, field) for name, field in fields(cls).items() if _is_limited(field)]


def _is_limited(field: Field) -> bool:
    inner = (field.item and _is_limited(field.item)) or (field.nested and _limited(field.nested))
    return bool(field.bounds or field.parameter.choices or inner)


def plain(value: Any) -> Any:
    """A dataclass as the JSON values it is made of, like dataclasses.asdict, which takes six times as long
    because it looks at every value for what it might be."""
    if type(value) in _PLAIN:
        return value
    if (names := _names(type(value))) is not None:
        values = ((name, getattr(value, name)) for name in names)
        return {
            name: one if type(one) in _PLAIN else plain(one) for name, one in values
        }  # a call less for each
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
