"""The specification of soft-capped scores, score expressions and sinks, and the comparison with it."""

from __future__ import annotations

import torch

from fusescope.measure.checking.check import compare
from fusescope.ops.attention.score.values import modified
from tests.attention.attention_tools import OP


def reference(inputs, softcap, sinks):
    """float64 (B, H, S_q, D) of a case's inputs; rows without a key are zeros."""
    q, k, v, bias = (None if inputs[n] is None else inputs[n].double() for n in ("q", "k", "v", "bias"))
    group = q.shape[1] // k.shape[1]
    scores = q @ k.repeat_interleave(group, 1).transpose(2, 3) * q.shape[3] ** -0.5
    if inputs.get("score") is not None:
        scores = modified(inputs["score"], scores, (0, q.shape[2]), q.shape[2])
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    if bias is not None:
        scores = scores + bias
    scores = scores.masked_fill(~inputs["plan"].dense(), -torch.inf)
    if sinks is not None:
        scores = torch.cat([scores, sinks.double()[:, None, None].expand(*scores.shape[:3], 1)], 3)
    weights = scores.softmax(-1).nan_to_num(0)[..., : k.shape[2]]
    return weights @ v.repeat_interleave(group, 1)


def wrong(out, inputs, dtype, softcap, sinks):
    """What is wrong with a result, or None."""
    return compare(out.contiguous(), reference(inputs, softcap, sinks), OP.TOLERANCE[dtype]).reason
