"""Attention: softmax(scale q kᵀ + bias, where the mask keeps) v, with tiles that the mask leaves empty
skipped."""

from fusescope.ops.attention.describe.cases import DTYPES, PARAMETERS, TOLERANCE, cost, tolerance, validate
from fusescope.ops.attention.describe.inputs import arguments, auto, call, inputs, prepared, reference
from fusescope.ops.attention.functional import attention
from fusescope.ops.attention.peers.torch_peers import PEERS

__all__ = [
    "DTYPES", "FAMILY", "NAME", "PARAMETERS", "PEERS", "SUMMARY", "TITLE", "TOLERANCE", "arguments", "attention", "auto",
    "call", "cost", "inputs", "prepared", "reference", "tolerance", "validate",
]  # fmt: skip

NAME = "attention"
TITLE = "Attention"
SUMMARY = "out = softmax(q kᵀ / √D + bias, where the mask keeps) v, forward, per head; rows without a live key are zeros."
FAMILY = "attention"
