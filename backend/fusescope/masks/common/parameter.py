"""A mask's parameter: its kind, bounds and default, and how its value is checked, written and read."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

LARGEST = 1 << 20
"""No length or window above this: a drawn cell's number holds 20 bits of row and of column."""


@dataclass(frozen=True)
class Parameter:
    """One parameter of a mask.

    kind: "int", "float", "bool", "ints" (a list, written 3+5+9) or "ints/" (a list, or one list a sequence:
    3+5/4+4). default: from the number of keys S, resolved when the mask is bound to a size; None where it
    must be given. default_text says it in words; low and high bound each number; typical lists values that a
    slider offers.
    """

    name: str
    kind: str
    default: Callable[[int], Any] | None
    default_text: str
    help: str
    low: float = 0
    high: float = LARGEST
    typical: tuple = ()

    def check(self, value: Any) -> Any:
        """The value as an immutable Python value of this kind; ValueError names the rule and the value
        given."""
        if self.kind == "int":
            return self._whole(value)
        if self.kind == "bool":
            if isinstance(value, bool) or type(value).__name__ in ("bool_", "bool"):
                return bool(value)
            raise ValueError(f"{self.name} is true or false, not {value!r}")
        if self.kind == "float":
            return self._real(value)
        if self.kind == "ints/" and _is_list(value) and len(value) and all(_is_list(v) for v in value):
            return tuple(self._whole_list(v) for v in value)
        return self._whole_list(value)

    def read(self, text: str) -> Any:
        """The value that a text writes, checked; ValueError as above."""
        if self.kind == "bool":
            if text.lower() in ("true", "1", "yes", "false", "0", "no"):
                return text.lower() in ("true", "1", "yes")
            raise ValueError(f"{self.name} is true or false, not {text!r}")
        if self.kind == "ints/" and "/" in text:
            return self.check([self._numbers(part) for part in text.split("/")])
        if self.kind in ("ints", "ints/"):
            return self.check(self._numbers(text))
        try:
            return self.check(float(text) if self.kind == "float" else int(text))
        except (ValueError, OverflowError):
            raise ValueError(f"{self.name} is {self._rule()}, not {text!r}") from None

    def write(self, value: Any) -> str:
        """The checked value as ``read`` takes it."""
        if self.kind == "bool":
            return "true" if value else "false"
        if self.kind == "float":
            return repr(value)
        if isinstance(value, tuple):
            if value and isinstance(value[0], tuple):
                return "/".join("+".join(map(str, v)) for v in value)
            return "+".join(map(str, value))
        return str(value)

    def _numbers(self, text: str) -> list[int]:
        try:
            return [int(part) for part in text.split("+")]
        except ValueError:
            raise ValueError(f"{self.name} is a list of whole numbers such as 3+5+9, not {text!r}") from None

    def _whole(self, value: Any) -> int:
        try:
            if isinstance(value, bool):
                raise TypeError
            number = operator.index(value)
        except TypeError:
            raise ValueError(f"{self.name} is {self._rule()}, not {value!r}") from None
        if not self.low <= number <= self.high:
            raise ValueError(f"{self.name} is {self._rule()}, not {value!r}")
        return number

    def _real(self, value: Any) -> float:
        try:
            if isinstance(value, (bool, str)):
                raise TypeError
            number = float(value)
        except (TypeError, ValueError):
            raise ValueError(f"{self.name} is {self._rule()}, not {value!r}") from None
        if not self.low <= number <= self.high:
            raise ValueError(f"{self.name} is {self._rule()}, not {value!r}")
        return number

    def _whole_list(self, value: Any) -> tuple[int, ...]:
        if not _is_list(value):
            value = [value]
        if len(value) == 0:
            raise ValueError(f"{self.name} is a list of at least one whole number, not an empty one")
        return tuple(self._whole(v) for v in value)

    def _rule(self) -> str:
        what = "a number" if self.kind == "float" else "a whole number"
        return f"{what} from {self.low} to {self.high}"


def _is_list(value: Any) -> bool:
    return (
        not isinstance(value, (str, bytes, dict)) and hasattr(value, "__len__") and hasattr(value, "__iter__")
    )
