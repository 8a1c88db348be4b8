"""Qwen 2 and 2.5: Llama's layers with biases of query, key and value (Yang et al. 2024, arXiv 2407.10671;
config.json of Qwen/Qwen2.5-7B)."""

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

NAMES = {
    "qwen2.5-7b": Config(
        "qwen2.5-7b",
        3584,
        28,
        28,
        128,
        18944,
        vocab=152064,
        kv_heads=4,
        positions=131072,
        eps=1e-6,
        activation="silu",
        tied=False,
        more={"rope_theta": 1000000.0},
    )
}
TITLE = {"qwen2.5-7b": "Qwen 2.5 7B"}
SETTINGS = replace(
    llama.SETTINGS,
    title="Qwen 2",
    model_type="qwen2",
    config="Qwen2Config",
    module="Qwen2ForCausalLM",
    names={size: key for size, key in llama.SETTINGS.names.items() if size != "head_dim"},
    fixed={"use_sliding_window": False},
)
_L, _N = "model.layers.{i}.self_attn", "decoder/layer {i}/attention"
WEIGHTS = (
    *llama.WEIGHTS,
    Weight(f"{_L}.q_proj.bias", ("inner",), f"{_N}/query", "layers.{i}.qkv.bias"),
    Weight(f"{_L}.k_proj.bias", ("kv_inner",), f"{_N}/key", "layers.{i}.qkv.bias"),
    Weight(f"{_L}.v_proj.bias", ("kv_inner",), f"{_N}/value", "layers.{i}.qkv.bias"),
)
