"""Biases of every layout that kernels treat apart, and cases with them."""

from __future__ import annotations

import math

import torch

from tests.attention import attention_tools

CASES = (
    {"seq": 150, "seq_k": 200, "head_dim": 64, "layout": "rows"},  # warpgroups that share a query tile
    {"seq": 70, "seq_k": 650, "head_dim": 40, "layout": "padded", "softcap": 4.0, "sinks": True},
    {"seq": 65, "seq_k": 390, "head_dim": 64, "layout": "late", "mask": "causal"},
    {"seq": 130, "seq_k": 330, "head_dim": 96, "layout": "padded", "mask": "sliding_window:left=200,right=9"},
    {"seq": 33, "seq_k": 265, "head_dim": 128, "layout": "rows", "float32": True, "sinks": True},
    {
        "seq": 200,
        "seq_k": 120,
        "head_dim": 64,
        "layout": "rows",
        "mask": "causal",
    },  # a step alone, empty rows
    {"seq": 190, "seq_k": 130, "head_dim": 32, "layout": "transposed", "softcap": 2.0},
    {"seq": 70, "seq_k": 136, "head_dim": 64, "layout": "one row", "batch": 2, "masking": True},
    {"seq": 70, "seq_k": 136, "head_dim": 64, "layout": "one column", "heads": 2, "masking": True},
    {"seq": 90, "seq_k": 300, "head_dim": 64, "layout": "padded", "masking": True, "softcap": 9.0},
    # Two query tiles a block, in several steps.
    {"seq": 67, "seq_k": 300, "head_dim": 64, "layout": "rows of one head", "heads": 67, "batch": 2},
    {"seq": 65, "seq_k": 269, "head_dim": 64, "layout": "padded of one batch", "heads": 133, "masking": True}
    | {"mask": "longformer:window=9,global_tokens=3", "sinks": True},
    {"seq": 9, "seq_k": 400, "head_dim": 72, "layout": "rows of one head", "heads": 67, "batch": 2},
    {"seq": 65, "seq_k": 290, "head_dim": 128, "layout": "padded", "heads": 67, "masking": True},
    {
        "seq": 66,
        "seq_k": 135,
        "head_dim": 128,
        "layout": "late",
        "heads": 67,
        "float32": True,
        "softcap": 9.0,
    },
)
"""layout: ``made``; masking: some biases are −inf, of several rows all of one; float32: the bias is."""
APART = ("layout", "masking", "float32", "softcap", "sinks")
"""Of a case's values, what the operator's parameters have not."""


def made(layout: str, masking: bool, shape: tuple, dtype: torch.dtype, device: str, seed: int):
    """A bias broadcastable to the shape (B, H, S_q, S_k). layout: rows (contiguous), padded (rows begin at
    multiples of 16 bytes), late (an odd address), transposed (a key's rows side by side), one row, one
    column; "… of one head", "… of one batch": the same for all."""
    layout, _, one = layout.partition(" of one ")
    b, h, q, k = shape
    size = (1 if one == "batch" else b, 1 if one == "head" else h)
    size += (1 if layout == "one row" else q, 1 if layout == "one column" else k)
    generator = torch.Generator().manual_seed(seed)
    bias = torch.randn(size, generator=generator)
    if masking:
        bias[torch.rand(size, generator=generator) < 0.3] = -math.inf
        if size[2] > 1:
            bias[:, :, size[2] // 2] = -math.inf
    bias = bias.to(device, dtype)
    if layout == "padded":
        room = bias.new_full((*size[:3], -(-size[3] // 8) * 8), math.nan)
        return room[..., : size[3]].copy_(bias)
    if layout == "late":
        return bias.new_full((bias.numel() + 1,), math.nan)[1:].view(size).copy_(bias)
    return bias.transpose(2, 3).contiguous().transpose(2, 3) if layout == "transposed" else bias


def inputs(values: dict, dtype: str, device: str, seed: int, contiguous: bool = True) -> dict:
    """A case's inputs, with its bias, softcap and sinks (None where there are none)."""
    given = {name: value for name, value in values.items() if name not in APART}
    case = attention_tools.case(**{"batch": 1, "heads": 1} | given)
    whole = attention_tools.OP.inputs(case, dtype, device, seed, contiguous)
    q, k = whole["q"], whole["k"]
    kind = torch.float32 if values.get("float32") else q.dtype
    shape = (*q.shape[:3], k.shape[2])
    whole["bias"] = made(values["layout"], bool(values.get("masking")), shape, kind, device, seed)
    heads = torch.linspace(-1, 2, shape[1], device=device)
    return whole | {"softcap": values.get("softcap"), "sinks": heads if values.get("sinks") else None}
