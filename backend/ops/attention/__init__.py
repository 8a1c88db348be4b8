"""Attention: softmax(scale q kᵀ + bias, where the mask keeps) v, with tiles that the mask leaves empty skipped.

    from backend.ops.attention import attention, prepare

cases.py says what a case is and costs, problem.py makes inputs and the reference, plan.py turns masks into tile lists,
buffer.py puts them into one tensor, functional.py is the public function, checks.py what it refuses, choosing.py which kernel it takes, short.py
the way past both; varlen.py and decode.py are its siblings, peers.py and flex.py what a user could pick instead.
"""

from backend.kernels import register_fakes
from backend.ops.attention.cases import DTYPES, PARAMETERS, TOLERANCE, cost, tolerance, validate
from backend.ops.attention.choosing import choose
from backend.ops.attention.decode import attention_decode
from backend.ops.attention.functional import attention, fake
from backend.ops.attention.peers import PEERS
from backend.ops.attention.plan import Plan, prepare
from backend.ops.attention.problem import arguments, auto, call, inputs, prepared, reference
from backend.ops.attention.varlen import attention_varlen

__all__ = [
    "DTYPES", "FAMILY", "NAME", "PARAMETERS", "PEERS", "SUMMARY", "TITLE", "TOLERANCE", "Plan", "arguments", "attention",
    "attention_decode", "attention_varlen", "auto",
    "call", "choose", "cost", "inputs", "prepare", "prepared", "reference", "tolerance", "validate",
]  # fmt: skip

NAME = "attention"
TITLE = "Attention"
SUMMARY = "out = softmax(q kᵀ / √D + bias, where the mask keeps) v, forward, per head; rows without a live key are zeros."
FAMILY = "attention"

register_fakes({"attention": fake})
