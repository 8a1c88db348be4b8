"""Keys of a mapping that comes from outside, described by parameters, completed and checked by one
function."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fusescope.core.schema import written

REQUIRED = type("Required", (), {"__repr__": lambda self: "REQUIRED"})()
"""The default of a parameter that must be given."""


@dataclass(frozen=True)
class Parameter:
    """One key of a mapping that comes from outside.

    kind: "int", "float", "bool", "choice", "text", "mask" (a mask's text), "ints" (a list, written 3+5+9),
    "ints/" (a list, or one list per sequence: 3+5/4+4), "floats", "names", "list" (of
    anything), "object", "objects" or "any".
    default: a value; None where it may be absent or is derived from others (help says which); REQUIRED; for
    a mask also a function of the number of keys, and default_help says what that gives.
    low, high, above: bounds of each number, ``above`` itself excluded. typical: what a slider offers.
    sweep: whether it makes sense to sweep over it. further: a last check, which gives the value to use or
    raises ValueError. omitted: left out of a complete mapping where it has its default, as in the cases of
    runs that are older than the key, which so stay the same cases.
    """

    name: str
    kind: str
    default: Any = REQUIRED
    help: str = ""
    low: float | None = None
    high: float | None = None
    typical: tuple = ()
    choices: tuple = ()
    sweep: bool = False
    above: float | None = None
    default_help: str = ""
    further: Callable[[Any], Any] | None = None
    omitted: bool = False

    @property
    def default_text(self) -> str:
        """The default as people read it."""
        absent = self.default is None or self.default is REQUIRED
        return self.default_help or ("none" if absent else self.write(self.default))

    def default_for(self, keys: int) -> Any:
        """The default on so many keys, checked where it is a function of them."""
        return self.check(self.default(keys)) if callable(self.default) else self.default

    @property
    def rule(self) -> str:
        """What is supported, such as "an integer from 1 to 4096"."""
        if self.kind == "choice":
            return either(self.choices)
        bounds = "" if self.above is None else f" above {self.above:g}"
        if self.low is not None:
            bounds += f" of at least {self.low:,}" if self.high is None else f" from {self.low:,}"
        if self.high is not None:
            bounds += f" to {self.high:,}" if bounds else f" of at most {self.high:,}"
        return _RULES[self.kind].format(bounds)

    def check(self, value: Any) -> Any:
        """The Python or JSON value as one of this kind, lists of integers as tuples; ValueError names the
        rule and the value."""
        try:
            checked = self._of_kind(value)
            if not all(map(self._within, _numbers(checked))):
                raise ValueError
        except (TypeError, ValueError, OverflowError):
            raise self._error(value) from None
        return self.further(checked) if self.further else checked

    def read(self, value: Any) -> Any:
        """``check`` of a value that may be text: "12", "16k", "true", "3+5+9"; a text may be a number."""
        if self.kind == "text" and type(value) is int:
            value = str(value)
        if isinstance(value, str):
            try:
                value = self._parsed(value.strip())
            except (ValueError, OverflowError):
                raise self._error(value) from None
        return self.check(value)

    def write(self, value: Any) -> str:
        """A checked value as ``read`` takes it."""
        if isinstance(value, tuple):
            nested = bool(value) and isinstance(value[0], tuple)
            return ("/" if nested else "+").join(map(self.write, value))
        return str(value).lower() if isinstance(value, bool) else str(value)

    def _of_kind(self, value: Any) -> Any:
        if self.kind == "choice":
            return self.choices[[(type(c), c) for c in self.choices].index((type(value), value))]
        return _CHECKS[self.kind](value)

    def _parsed(self, text: str) -> Any:
        if self.kind == "choice":
            return next((c for c in self.choices if str(c) == text), text)
        return _PARSERS.get(self.kind, str)(text)

    def _within(self, number: float) -> bool:
        above, low, high = self.above, self.low, self.high
        return (
            math.isfinite(number)
            and (above is None or number > above)
            and (low is None or number >= low)
            and (high is None or number <= high)
        )

    def _error(self, value: Any) -> ValueError:
        shown = repr(value)
        return ValueError(
            f"{self.name} must be {self.rule}, not {shown if len(shown) <= 120 else shown[:119] + '…'}"
        )


def size(
    name: str, default: int | None, help: str, high: int, typical: tuple[int, ...] = (), sweep: bool = True
) -> Parameter:
    """A parameter that is a whole number of at least 1, such as a dimension of a tensor."""
    return Parameter(name, "int", default, help, low=1, high=high, typical=typical, sweep=sweep)


def complete(
    who: str, parameters: Iterable[Parameter], values: Mapping[str, Any], text: bool = False
) -> dict[str, Any]:
    """The value of every parameter, checked; what is absent or None takes its default, or stays absent where
    it is omitted then.

    text: values may be written as text. ValueError in one sentence: an unknown key, one that is missing, a
    value of another kind or out of bounds.
    """
    if not isinstance(values, Mapping):
        raise ValueError(f"{who} takes {_RULES['object']}, not {values!r}")
    known = {p.name: p for p in parameters}
    if unknown := [str(key) for key in values if key not in known]:
        raise ValueError(
            f"{who} takes {', '.join(known) or 'no parameters'}, not {', '.join(sorted(unknown))}"
        )
    given = {key: value for key, value in values.items() if value is not None}
    missing = [p for p in known.values() if p.default is REQUIRED and p.name not in given]
    if missing:
        names = ", ".join(f"{p.name} ({p.help})" if p.help else p.name for p in missing)
        raise ValueError(f"{who} needs {names}")
    whole = {name: p.default for name, p in known.items()}
    whole |= {k: known[k].read(v) if text else known[k].check(v) for k, v in given.items()}
    return {k: v for k, v in whole.items() if not known[k].omitted or v != known[k].default}


def check_int(name: str, value: Any, low: int | None = None, high: int | None = None) -> int:
    """The value as an int within the bounds; ValueError names the rule and the value."""
    return Parameter(name, "int", low=low, high=high).check(value)


def either(choices: Iterable[Any]) -> str:
    """The choices as a sentence lists them: "warm, cold or both"."""
    *most, last = map(str, choices)
    return f"{', '.join(most)} or {last}" if most else last


def _integer(value: Any) -> int:
    if isinstance(value, bool):
        raise TypeError
    return operator.index(value)


def _real(value: Any) -> float:
    if isinstance(value, bool | str):
        raise TypeError
    return float(value)


def _truth(value: Any) -> bool:
    if type(value).__name__ not in ("bool", "bool_"):
        raise TypeError
    return bool(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _integers(value: Any) -> tuple[int, ...]:
    """A list of integers, or one alone; TypeError, ValueError where it is none or empty."""
    if not _is_list(value):
        return (_integer(value),)
    return tuple(map(_integer, _filled(value)))


def _lists(value: Any) -> tuple:
    nested = _is_list(value) and len(value) and all(map(_is_list, value))
    return tuple(map(_integers, value)) if nested else _integers(value)


def _is_list(value: Any) -> bool:
    return (
        hasattr(value, "__len__") and hasattr(value, "__iter__") and not isinstance(value, str | bytes | dict)
    )


def _filled(value: Any) -> list:
    if not _is_list(value) or len(value) == 0:
        raise ValueError
    return list(value)


def _floats(value: Any) -> list[float]:
    if not _is_list(value):
        raise TypeError
    return [one if type(one) is float else _real(one) for one in value]


def _names(value: Any) -> list[str]:
    if not _is_list(value) or not all(isinstance(one, str) for one in value):
        raise TypeError
    return list(value)


def _list(value: Any) -> list:
    if not _is_list(value):
        raise TypeError
    return list(value)


def _object(value: Any) -> dict:
    if not isinstance(value, Mapping):
        raise TypeError
    return dict(value)


def _objects(value: Any) -> list[dict]:
    return list(map(_object, _filled(value)))


def _yes_or_no(text: str) -> bool:
    if text.lower() not in ("true", "1", "yes", "false", "0", "no"):
        raise ValueError
    return text.lower() in ("true", "1", "yes")


def _joined(text: str) -> list[int]:
    return [written.whole(part) for part in text.split("+")]


def _numbers(value: Any) -> Iterator[float]:
    """The numbers in a checked value."""
    if isinstance(value, tuple):
        for one in value:
            yield from _numbers(one)
    elif isinstance(value, int | float):
        yield value


_RULES = {
    "int": "an integer{}",
    "float": "a number{}",
    "bool": "true or false",
    "text": "a text",
    "mask": "a mask such as causal or bigbird:window=64,seed=1",
    "ints": "a list of one or more integers{} such as 3+5+9",
    "ints/": "a list of one or more integers{} such as 3+5+9, or one list per sequence such as 3+5/4+4",
    "floats": "a list of numbers",
    "names": "a list of names",
    "list": "a list",
    "object": "an object of keys and values",
    "objects": "a list of one or more objects of keys and values",
    "any": "a value",
}
_CHECKS: dict[str, Callable[[Any], Any]] = {
    "int": _integer,
    "float": _real,
    "bool": _truth,
    "text": _text,
    "mask": _text,
    "ints": _integers,
    "ints/": _lists,
    "floats": _floats,
    "names": _names,
    "list": _list,
    "object": _object,
    "objects": _objects,
    "any": lambda value: value,
}
_PARSERS: dict[str, Callable[[str], Any]] = {
    "int": written.whole,
    "float": written.real,
    "bool": _yes_or_no,
    "ints": _joined,
    "ints/": lambda text: [_joined(part) for part in text.split("/")] if "/" in text else _joined(text),
    "names": lambda text: [name.strip() for name in text.split(",")],
}
