"""Qwen 3: Llama's layers with an RMSNorm of each head's queries and keys, and heads that need not make up the
width (Yang et al. 2025, arXiv 2505.09388; config.json of Qwen/Qwen3-0.6B and Qwen/Qwen3-8B)."""

from __future__ import annotations

from dataclasses import replace

from fusescope.models.describe.family import Config, Weight
from fusescope.models.families import llama
from fusescope.models.families.llama import (  # noqa: F401 (the tables of a family)
    IGNORED,
    KIND,
    MASK,
    MODULES,
    PHASES,
    PREFIXES,
    STRUCTURE,
    further,
    more,
)

_COMMON = dict(
    vocab=151936,
    kv_heads=8,
    positions=40960,
    eps=1e-6,
    activation="silu",
    more={"rope_theta": 1000000.0},
)
NAMES = {
    "qwen3-0.6b": Config("qwen3-0.6b", 1024, 28, 16, 128, 3072, tied=True, **_COMMON),
    "qwen3-8b": Config("qwen3-8b", 4096, 36, 32, 128, 12288, tied=False, **_COMMON),
}
TITLE = {"qwen3-0.6b": "Qwen 3 0.6B", "qwen3-8b": "Qwen 3 8B"}
SETTINGS = replace(
    llama.SETTINGS,
    title="Qwen 3",
    model_type="qwen3",
    config="Qwen3Config",
    module="Qwen3ForCausalLM",
    fixed={"attention_bias": False, "use_sliding_window": False},
)
_L, _N = "model.layers.{i}.self_attn", "decoder/layer {i}/attention"
WEIGHTS = (
    *llama.WEIGHTS,
    Weight(f"{_L}.q_norm.weight", ("head_dim",), f"{_N}/query RMSNorm", "layers.{i}.q_norm.weight"),
    Weight(f"{_L}.k_norm.weight", ("head_dim",), f"{_N}/key RMSNorm", "layers.{i}.k_norm.weight"),
)
