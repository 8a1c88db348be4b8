"""Attention whose scores an expression modifies: the expression with its tensors, the kernels compiled with
it, and what it is as a function of tensors."""

from fusescope.ops.attention.score.compiled import compile_score
from fusescope.ops.attention.score.score import Score

__all__ = ["Score", "compile_score"]
