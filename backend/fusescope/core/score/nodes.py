"""The nodes of a score expression: what each is of, an integer, a floating-point number or a condition, and
within which bounds. Equal ones are one object."""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

POSITIONS = 1 << 23
"""Batch entries, heads and positions lie below it, the latter also negative: exact in fp32, as are sums of
two."""
_INT32 = (-(1 << 31), (1 << 31) - 1)
_INT64 = 1 << 62
_VARIABLES = {
    "score": ("float", (0, 0)),
    "b": ("int", (0, POSITIONS)),
    "h": ("int", (0, POSITIONS)),
    "q": ("int", (-POSITIONS, POSITIONS)),
    "k": ("int", (0, POSITIONS)),
}
VARIABLES = tuple(_VARIABLES)
FUNCTIONS = {"where": 3, "tanh": 1, "exp": 1, "log": 1, "sqrt": 1, "abs": 1, "min": 2, "max": 2}
COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
_KEEPS_INT = ("+", "-", "*", "//", "%", "neg", "abs", "min", "max")  # integers of integers
_MATH: dict[str, Callable[..., Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "neg": operator.neg,
    "abs": abs,
    "min": min,
    "max": max,
    "tanh": math.tanh,
    "exp": math.exp,
    "log": math.log,
    "sqrt": math.sqrt,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "and": operator.and_,
    "or": operator.or_,
    "not": operator.not_,
    "where": lambda condition, a, b: a if condition else b,
}


@dataclass(frozen=True, eq=False)
class Node:
    """op: "number", a variable, "table", "float" (an integer as floating point), an operator or a function.
    kind: "int", "float" or "bool". value: of a number; the place of a table. bounds: of an integer.
    depends: the variables that it is of."""

    op: str
    kind: str
    args: tuple[Node, ...] = ()
    value: Any = None
    bounds: tuple[int, int] = (0, 0)
    depends: frozenset[str] = frozenset()

    @property
    def wide(self) -> bool:
        """Whether it is an integer of 64 bits."""
        return self.kind == "int" and not (_INT32[0] <= self.bounds[0] <= self.bounds[1] <= _INT32[1])


class Nodes:
    """Makes nodes, each once. ValueError says what the parts of an expression lack, without naming the
    part."""

    def __init__(self) -> None:
        self._made: dict[tuple, Node] = {}

    def number(self, value: bool | int | float) -> Node:
        """A number that fp32 or int32 holds, or a condition that is always the same."""
        if isinstance(value, bool):
            return self._node("number", "bool", value=value)
        if isinstance(value, int):
            if not _INT32[0] <= value <= _INT32[1]:
                raise ValueError("a whole number lies within 32 bits; with a point it is floating point")
            return self._node("number", "int", value=value, bounds=(value, value))
        try:
            struct.pack("<f", value)
        except OverflowError:
            value = math.inf
        if not math.isfinite(value):
            raise ValueError("a number is finite in fp32, at most 3.4e38")
        return self._node("number", "float", value=value)

    def variable(self, name: str) -> Node:
        kind, bounds = _VARIABLES[name]
        return self._node(name, kind, bounds=bounds, depends=frozenset((name,)))

    def table(self, place: int, kind: str, index: tuple[Node, ...]) -> Node:
        """An element of the table of this place."""
        if any(node.kind != "int" for node in index):
            raise ValueError(
                "an index is an integer: b, h, q, k, an int32 tensor, and + - * // % abs min max of these"
            )
        _check_size(*index)
        return self._node("table", kind, index, place, _INT32)

    def apply(self, op: str, *args: Node) -> Node:
        """An operator or function of these."""
        wanted = ("bool",) if op in ("and", "or", "not") else ("int", "float")
        for place, node in enumerate(args):
            if (node.kind == "bool") != ("bool" in wanted or (op == "where" and place == 0)):
                raise ValueError(
                    "and, or, not and where's first argument take a condition, everything else a number "
                    "(where(condition, 1, 0) makes a number of a condition)"
                )
        if op in ("//", "%") and not (
            args[0].kind == "int" and args[1].op == "number" and _positive(args[1])
        ):
            raise ValueError("// and % take an integer and a whole number above 0")
        numbers = args[1:] if op == "where" else args
        whole = all(node.kind == "int" for node in numbers)
        if op in COMPARISONS or wanted == ("bool",):
            kind = "bool"
        else:
            kind = "int" if whole and op in (*_KEEPS_INT, "where") else "float"
        if kind == "float" or (not whole and op in COMPARISONS):
            args = (*args[: len(args) - len(numbers)], *map(self.as_float, numbers))
        if all(node.op == "number" for node in args):
            return self._folded(op, args)
        if op in ("//", "%", *COMPARISONS):
            _check_size(*args)
        bounds = _bounds(op, *(node.bounds for node in numbers)) if kind == "int" else (0, 0)
        return self._node(op, kind, args, bounds=bounds)

    def as_float(self, node: Node) -> Node:
        """An integer as floating point: sums and products of integers as those of floating-point numbers,
        because converting positions once costs less than converting every result."""
        if node.kind != "int":
            return node
        if node.op == "number":
            return self.number(float(node.value))
        if node.op in ("+", "-", "*", "neg", "abs", "min", "max"):
            return self._node(node.op, "float", tuple(map(self.as_float, node.args)))
        if node.op == "where":
            return self._node("where", "float", (node.args[0], *map(self.as_float, node.args[1:])))
        return self._node("float", "float", (node,))

    def _folded(self, op: str, args: tuple[Node, ...]) -> Node:
        try:
            return self.number(_MATH[op](*(node.value for node in args)))
        except (ArithmeticError, ValueError):
            raise ValueError(
                "a number is finite in fp32, at most 3.4e38, or a whole number within 32 bits"
            ) from None

    def _node(self, op, kind, args=(), value=None, bounds=(0, 0), depends=None) -> Node:
        if depends is None:
            depends = frozenset().union(*(node.depends for node in args))
        key = (op, kind, tuple(map(id, args)), type(value), value, bounds)
        if key not in self._made:
            self._made[key] = Node(op, kind, args, value, bounds, depends)
        return self._made[key]


def bounds_with(node: Node, ranges: dict[str, tuple[int, int]]) -> tuple[int, int]:
    """The least and largest value of an integer where variables, and elements of tensors ("table"), have
    these ranges."""
    if node.op == "number":
        return node.bounds
    if node.op in ranges:
        return ranges[node.op]
    numbers = [arg for arg in node.args if arg.kind == "int"]
    return _bounds(node.op, *(bounds_with(arg, ranges) for arg in numbers))


def _check_size(*nodes: Node) -> None:
    """Where integers stay such, they and all that they are of are of 62 bits at most."""
    for node in nodes:
        if node.kind == "int":
            if max(map(abs, node.bounds)) >= _INT64:
                raise ValueError(
                    "an index, and an integer that is compared or divided by // or %, is within 62 bits"
                )
            _check_size(*node.args)


def _positive(node: Node) -> bool:
    return node.kind == "int" and node.value > 0


def _bounds(op: str, *of: tuple[int, int]) -> tuple[int, int]:
    """Of an integer operator's result."""
    (low, high), (other_low, other_high) = of[0], of[-1]
    if op == "+":
        return low + other_low, high + other_high
    if op == "-":
        return low - other_high, high - other_low
    if op == "*":
        products = [a * b for a in (low, high) for b in (other_low, other_high)]
        return min(products), max(products)
    if op == "//":
        return low // other_low, high // other_low
    if op == "%":
        return 0, other_low - 1
    if op == "neg":
        return -high, -low
    if op == "abs":
        return 0, max(abs(low), abs(high))
    if op == "min":
        return min(low, other_low), min(high, other_high)
    if op == "max":
        return max(low, other_low), max(high, other_high)
    return min(low, other_low), max(high, other_high)  # where
