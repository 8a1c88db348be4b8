"""A score expression as a function of tensors, by the functions of torch: what the reference, the peers and
FlexAttention's score_mod compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fusescope.core.score.nodes import Node
from fusescope.core.score.parse import Expression

_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
}


def function(expression: Expression, torch) -> Callable[..., Any]:
    """f(score, b, h, q, k, tables): the expression in score's dtype. score: a floating-point tensor; b, h,
    q, k: integer tensors that broadcast with it; tables: a tensor for each of ``expression.tables``."""
    return _function(expression.root, torch)


def _function(node: Node, torch) -> Callable[..., Any]:
    """Functions of functions rather than a text to execute; torch.compile traces through them."""
    op, value = node.op, node.value
    if op == "number":
        return lambda *given: value
    if op in ("score", "b", "h", "q", "k"):
        place = ("score", "b", "h", "q", "k").index(op)
        return lambda *given: given[place]
    args = [_function(arg, torch) for arg in node.args]
    if op == "table":
        return _element(value, args, node.kind, torch)
    if op == "where":
        return _choice(*args, node.kind, torch)
    if op in _OPERATORS:
        (a, b), apply = args, _OPERATORS[op]
        return lambda *given: apply(a(*given), b(*given))
    if op in ("min", "max"):
        (a, b), pick = (
            args,
            (torch.fmin, torch.fmax) if node.kind == "float" else (torch.minimum, torch.maximum),
        )
        pick = pick[op == "max"]
        dtype = _dtype(node.kind, torch)
        return lambda *given: pick(*_tensors(given[0], dtype, torch, a(*given), b(*given)))
    (a,) = args
    if op == "neg":
        return lambda *given: -a(*given)
    if op == "not":
        return lambda *given: torch.logical_not(a(*given))
    if op == "float":
        return lambda *given: a(*given).to(given[0].dtype)
    apply = getattr(torch, op)  # tanh, exp, log, sqrt, abs
    return lambda *given: apply(a(*given))


def _element(place: int, args: list, kind: str, torch) -> Callable[..., Any]:
    def read(*given):
        table = given[5][place]
        index = tuple(_within(arg(*given), size, torch) for arg, size in zip(args, table.shape))
        found = table[index]
        return found.to(given[0].dtype) if kind == "float" else found.long()

    return read


def _within(index, size: int, torch):
    """An index as the kernels take it: out of range it is that of the nearest element."""
    if isinstance(index, int):
        return min(max(index, 0), size - 1)
    return torch.clamp(index, 0, size - 1)


def _choice(condition, a, b, kind: str, torch) -> Callable[..., Any]:
    dtype = _dtype(kind, torch)

    def choose(*given):
        which, one, other = condition(*given), a(*given), b(*given)
        if isinstance(which, bool):
            return one if which else other
        return torch.where(which, *_tensors(given[0], dtype, torch, one, other))

    return choose


def _dtype(kind: str, torch):
    """None: score's."""
    return torch.int64 if kind == "int" else None


def _tensors(score, dtype, torch, *values):
    """Numbers among them as tensors, so that they have score's precision."""
    dtype = score.dtype if dtype is None else dtype
    return tuple(
        v if isinstance(v, torch.Tensor) else torch.full((), v, dtype=dtype, device=score.device)
        for v in values
    )
