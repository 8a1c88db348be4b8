"""Fused attention as users call it: attention(), attention_varlen(), attention_decode(), attention_fp8(), and
attention_decode_step(), which writes the KV cache besides.

    from fusescope.ops.attention import attention, prepare

describe/: what a case is, its cost, inputs and reference; plan/: from a mask to tile lists in one tensor;
work/: work items of kernels that take a mask in parts; dispatch/: checks and the choice of a kernel;
peers/: what a user could pick instead; score/: scores that an expression modifies. functional.py, varlen.py,
decode.py, step.py and fp8.py are the public functions.
"""

from fusescope.ops.attention.decode import attention_decode
from fusescope.ops.attention.dispatch.choice import choose
from fusescope.ops.attention.fp8 import attention_fp8, quantise_fp8
from fusescope.ops.attention.functional import attention
from fusescope.ops.attention.plan.plan import Plan, prepare
from fusescope.ops.attention.score import Score, compile_score
from fusescope.ops.attention.step import attention_decode_step
from fusescope.ops.attention.varlen import attention_varlen

__all__ = [
    "Plan",
    "Score",
    "attention",
    "attention_decode",
    "attention_decode_step",
    "attention_fp8",
    "attention_varlen",
    "choose",
    "compile_score",
    "prepare",
    "quantise_fp8",
]
