"""FuseScope: attention kernels for Transformer inference, and the instrument that checks and times kernels.

    import fusescope

    mask = fusescope.masks.load("bigbird", window=64, global_tokens=64)
    plan = fusescope.prepare(mask, 2048, 2048, "cuda")      # once for a mask and shape
    out = fusescope.attention(q, k, v, plan)                # (B, H, S, D)

attention           softmax(scale q kᵀ + bias, where the mask keeps) v on (B, H, S, D)
attention_varlen    the same on packed sequences, (total, H, D)
attention_decode    1 to 8 new queries per sequence against a KV cache
attention_fp8       attention on e4m3 operands (Hopper), which quantise_fp8 makes of 16-bit ones
prepare             a mask's tile lists on a device, as attention takes them
Score               an expression that scores become, such as score + slope[h] * (k - q), with its tensors
compile_score       such an expression compiled into the kernels before it is first used
masks               full, causal, sliding_window, bigbird, …: load, parse, from_dense
register_attention  attn_implementation="fusescope" in Hugging Face models
generate            tokens after a prompt, from a loaded GPT-2, Llama, Mistral or Qwen of Hugging Face
KVCache             what generate keeps for the next call of a conversation
bench               check and time implementations of an operator; returns records

Importing fusescope imports no torch: each name is loaded when it is first used. What is refused raises
ValueError or TypeError with the rule, the value given and what is supported. The rooms behind these names are
described in ARCHITECTURE.md; their paths may change, these names will not.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fusescope import masks as masks
    from fusescope.jobs.in_process import bench as bench
    from fusescope.models.generating import KVCache as KVCache
    from fusescope.models.generating import generate as generate
    from fusescope.models.register import register_attention as register_attention
    from fusescope.ops.attention import Score as Score
    from fusescope.ops.attention import attention as attention
    from fusescope.ops.attention import attention_decode as attention_decode
    from fusescope.ops.attention import attention_fp8 as attention_fp8
    from fusescope.ops.attention import attention_varlen as attention_varlen
    from fusescope.ops.attention import compile_score as compile_score
    from fusescope.ops.attention import prepare as prepare
    from fusescope.ops.attention import quantise_fp8 as quantise_fp8

__version__ = "0.1.0"

_HOME = {
    "KVCache": "fusescope.models",
    "Score": "fusescope.ops.attention",
    "attention": "fusescope.ops.attention",
    "attention_decode": "fusescope.ops.attention",
    "attention_fp8": "fusescope.ops.attention",
    "attention_varlen": "fusescope.ops.attention",
    "bench": "fusescope.jobs.in_process",
    "compile_score": "fusescope.ops.attention",
    "generate": "fusescope.models",
    "prepare": "fusescope.ops.attention",
    "quantise_fp8": "fusescope.ops.attention",
    "register_attention": "fusescope.models",
}
"""The module of each public name; masks is a package of its own."""

__all__ = ["__version__", "masks", *_HOME]


def __getattr__(name: str) -> Any:
    if name == "masks":
        return importlib.import_module("fusescope.masks")
    if name not in _HOME:
        raise AttributeError(f"module 'fusescope' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_HOME[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
