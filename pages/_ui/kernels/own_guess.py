"""Which operator a function of the user's computes, by its name and its parameters; nothing is run."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fusescope import ops
from fusescope.ops.common.user import Signature
from pages._ui.forms import own_examples

_ALSO = {
    "matmul": "gemm",
    "mm": "gemm",
    "sdpa": "attention",
    "rmsnorm": "rmsnorm_residual",
    "gelu": "bias_gelu",
    "rope": "rope_cache",
}
_SETTINGS = {
    "plan",
    "eps",
    "approximate",
    "activation",
    "residual",
    "up",
    "block_table",
    "causal",
    "direction",
}
"""Parameters that a function may leave out at the end (``ops.common.user.taken``)."""


def best(functions: Sequence[Signature], stem: str) -> tuple[Signature, str | None]:
    """(the function that was most likely meant, its operator or None) of a file's; ``stem``: the file's name
    without ".py"."""
    scored = [(function, *_guessed(function, stem)) for function in functions]
    function, op, _ = max(scored, key=lambda found: found[2])  # of equals the first
    return function, op


def misfit(function: Signature, op: str) -> str:
    """Why the function cannot be called as the operator is, as a sentence; "" where it can, or may."""
    if not own_examples.has(op) or _fits(function, op):
        return ""
    called = own_examples.signature(op).removeprefix(own_examples.NAME)
    return f"{function} does not fit {ops.load(op).TITLE}, which is called as {function.name}{called}"


def _guessed(function: Signature, stem: str) -> tuple[str | None, float]:
    """(operator or None, how much speaks for it)."""
    listed = [op for op in ops.names() if own_examples.has(op)]
    scores = {op: _named(function.name, op) or 0.5 * _named(stem, op) for op in listed}
    scores = {op: 100 * score + _alike(function, op) for op, score in scores.items()}
    op = max(listed, key=scores.get)
    return (op, scores[op]) if scores[op] > 0 else (None, 0.0)


def _named(name: str, op: str) -> float:
    """Letters of the operator's name, or of another word for it, that are in a name; 50 more where the name
    is nothing else."""
    plain = re.sub(r"[^a-z0-9]", "", name.lower())
    words = op.split("_")
    whole = 50 if plain == "".join(words) else 0
    if all(word in plain for word in words):
        return whole + sum(map(len, words))
    return max((len(word) for word, meant in _ALSO.items() if meant == op and word in plain), default=0)


def _alike(function: Signature, op: str) -> float:
    """From 0 to 99: how many parameters have the operator's names; 0 where it cannot be called so."""
    names = _parameters(op)
    if not _fits(function, op):
        return 0.0
    same = len(set(function.names) & set(names))
    return 1 + 98 * same / len({*function.names, *names})


def _fits(function: Signature, op: str) -> bool:
    names = _parameters(op)
    left_out = () if function.more else names[len(function.names) :]
    return function.required <= len(names) and _SETTINGS.issuperset(left_out)


def _parameters(op: str) -> list[str]:
    """What an operator passes by place."""
    inside = own_examples.signature(op).partition("(")[2].rstrip(")")
    return [name for name in inside.split(", ") if "=" not in name]
