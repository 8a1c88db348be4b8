"""Score: an expression with its tensors, as attention(score=…) takes it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from fusescope.core.score import Expression, cpp, parse
from fusescope.ops.attention.dispatch import checks

_MOST = (1 << 31) - 1


class Score:
    """A score expression with the tensors that it reads: what attention's scores become before bias, mask
    and softmax.

        slopes = 2.0 ** -torch.arange(1, 9, device="cuda", dtype=torch.float32)
        alibi = fusescope.Score("score + slope[h] * (k - q)", slope=slopes)
        out = fusescope.attention(q, k, v, mask, score=alibi)

    text: of score (scale q kᵀ), b, h, q, k (batch entry, query head, positions; query row i has position i
    + S_k − S_q), numbers, tensors by index (name[i], name[i, j]), + - * / // %, comparisons, and, or, not,
    where(condition, a, b), tanh, exp, log, sqrt, abs, min, max; // and % of integers by a whole number. Not
    executed: parsed, and compiled into the kernels. tensors: float32 or int32, of one or two dimensions,
    contiguous, on the device of the call; an index out of range reads the nearest element. They are read at
    every call, so that their values may change in place.

    A masked key stays unseen, whatever the expression gives there, and a score of −inf masks its key. On a
    GPU division, tanh, exp and log are the fast forms of CUDA (some 3e-7 of the result, of tanh of 1).

    Raises TypeError and ValueError in one sentence for a text that is not such an expression, and for other
    tensors.
    """

    def __init__(self, text: str, /, **tensors: Any):
        import torch

        for name, t in tensors.items():
            _check(torch, name, t)
        kinds = {name: ("float" if t.is_floating_point() else "int", t.dim()) for name, t in tensors.items()}
        expression = parse(text, kinds)
        set_ = object.__setattr__
        set_(self, "expression", expression)
        set_(self, "header", cpp.header(expression))
        set_(self, "tables", tuple(tensors[table.name] for table in expression.tables))
        if len({t.device for t in self.tables}) > 1:
            checks.one_device("the tensors of a score expression", *self.tables)

    expression: Expression
    header: str
    tables: tuple

    def __setattr__(self, name, value):
        raise AttributeError("a Score does not change: make another one")

    def __repr__(self) -> str:
        names = ", ".join(
            f"{table.name}={tuple(t.shape)}" for table, t in zip(self.expression.tables, self.tables)
        )
        return f"Score({self.expression.text!r}{', ' if names else ''}{names})"


class Lowered(NamedTuple):
    """A Score as kernels and operators take it: the text that a kernel is compiled with, and the tensors."""

    header: str
    tables: Sequence


def _check(torch, name: str, t) -> None:
    checks.are_tensors(torch, **{name: t})
    if t.dtype not in (torch.float32, torch.int32):
        raise TypeError(f"a tensor of a score expression is float32 or int32; {name} is {t.dtype}")
    if t.dim() not in (1, 2) or not 1 <= t.numel() <= _MOST:
        raise ValueError(
            "a tensor of a score expression has one or two dimensions and 1 to 2^31 - 1 elements; "
            f"{name} is of shape {tuple(t.shape)}"
        )
    if not t.is_contiguous():
        raise ValueError(f"a tensor of a score expression is contiguous, as {name}.contiguous() is")


def of(given) -> Score | Lowered:
    """What attention(score=…) was given, a text of one without tensors as Lowered."""
    if isinstance(given, (Score, Lowered)):
        return given
    if not isinstance(given, str):
        raise TypeError(
            f"score is a fusescope.Score or the text of one without tensors, not {type(given).__name__}"
        )
    return Lowered(_header(given), ())


def _header(text: str) -> str:
    return _of_text(text).header


_header._dynamo_marked_constant = True  # torch.compile cannot trace the parser


@lru_cache(maxsize=256)
def _of_text(text: str) -> Score:
    return Score(text)
