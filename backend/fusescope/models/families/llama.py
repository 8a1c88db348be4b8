"""A Llama-style decoder: RMSNorm, rotary positions, grouped KV heads, gated FFN (Touvron et al. 2023, arXiv
2302.13971).

llama-small is a configuration of this project, the size of GPT-2 small: width 768, 12 layers, 12 heads on 4
KV heads of 64, FFN 2048, 32,000 words, tables of 2048 positions that grow by config, head apart from the word
table. llama2-7b has the sizes of Llama 2 7B (Touvron et al. 2023, arXiv 2307.09288), llama3-8b those of
Llama 3 8B (Grattafiori et al. 2024, arXiv 2407.21783, table 3), llama3.1-8b besides the scaled rotary
positions of meta-llama/Llama-3.1-8B's config.json.
"""

from __future__ import annotations

from dataclasses import replace

from fusescope.models.by_config import rope
from fusescope.models.describe.family import Config, Split, Weight
from fusescope.models.describe.settings import Settings

KIND = "decoder"
PHASES = ("prefill", "decode")
NAMES = {
    "llama-small": Config(
        "llama-small",
        768,
        12,
        12,
        64,
        2048,
        vocab=32000,
        kv_heads=4,
        positions=2048,
        eps=1e-5,
        activation="silu",
        tied=False,
        more={"rope_theta": 10000.0},
    ),
    "llama2-7b": Config(
        "llama2-7b",
        4096,
        32,
        32,
        128,
        11008,
        vocab=32000,
        kv_heads=32,
        positions=4096,
        eps=1e-5,
        activation="silu",
        tied=False,
        more={"rope_theta": 10000.0},
    ),
    "llama3-8b": Config(
        "llama3-8b",
        4096,
        32,
        32,
        128,
        14336,
        vocab=128256,
        kv_heads=8,
        positions=8192,
        eps=1e-5,
        activation="silu",
        tied=False,
        more={"rope_theta": 500000.0},
    ),
}
NAMES["llama3.1-8b"] = replace(
    NAMES["llama3-8b"],
    name="llama3.1-8b",
    positions=131072,
    more={
        "rope_theta": 500000.0,
        "rope": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    },
)
TITLE = {
    "llama-small": "Llama-style, 125 M parameters",
    "llama2-7b": "Llama 2 7B",
    "llama3-8b": "Llama 3 8B",
    "llama3.1-8b": "Llama 3.1 8B",
}
SETTINGS = Settings(
    "Llama",
    "llama",
    "LlamaConfig",
    "LlamaForCausalLM",
    {
        "hidden": "hidden_size",
        "layers": "num_hidden_layers",
        "heads": "num_attention_heads",
        "kv_heads": "num_key_value_heads",
        "head_dim": "head_dim",
        "ffn": "intermediate_size",
        "vocab": "vocab_size",
        "positions": "max_position_embeddings",
        "eps": "rms_norm_eps",
        "activation": "hidden_act",
        "tied": "tie_word_embeddings",
    },
    {"kv_heads": None, "head_dim": None, "eps": 1e-6, "activation": "silu", "tied": False},
    {"attention_bias": False, "mlp_bias": False},
    ("silu",),
)
STRUCTURE = "decoder"
MODULES = {
    "embedded": "model.embed_tokens",
    "before": "model.layers.{i}.input_layernorm",
    "context": "model.layers.{i}.self_attn:context",
    "after": "model.layers.{i}.post_attention_layernorm",
    "out": "model.layers.{i}",
    "last": "model.norm",
    "logits": "lm_head",
}
PARALLEL = Split(
    "layers",
    columns=(
        "self_attn.q_proj",
        "self_attn.k_proj",
        "self_attn.v_proj",
        "mlp.gate_proj",
        "mlp.up_proj",
    ),
    rows=("self_attn.o_proj", "mlp.down_proj"),
    norm="norm",
)
PREFIXES = ("",)
IGNORED = ("*rotary_emb.inv_freq",)
MASK = "causal"

_L, _N = "model.layers.{i}", "decoder/layer {i}"
WEIGHTS = (
    Weight("model.embed_tokens.weight", ("vocab", "hidden"), "embeddings/word", "word"),
    Weight(
        f"{_L}.self_attn.q_proj.weight", ("inner", "hidden"), f"{_N}/attention/query", "layers.{i}.qkv.weight"
    ),
    Weight(
        f"{_L}.self_attn.k_proj.weight",
        ("kv_inner", "hidden"),
        f"{_N}/attention/key",
        "layers.{i}.qkv.weight",
    ),
    Weight(
        f"{_L}.self_attn.v_proj.weight",
        ("kv_inner", "hidden"),
        f"{_N}/attention/value",
        "layers.{i}.qkv.weight",
    ),
    Weight(
        f"{_L}.self_attn.o_proj.weight",
        ("hidden", "inner"),
        f"{_N}/attention/output",
        "layers.{i}.output.weight",
    ),
    Weight(f"{_L}.mlp.gate_proj.weight", ("ffn", "hidden"), f"{_N}/FFN/gate", "layers.{i}.gate_up.weight"),
    Weight(f"{_L}.mlp.up_proj.weight", ("ffn", "hidden"), f"{_N}/FFN/up", "layers.{i}.gate_up.weight"),
    Weight(f"{_L}.mlp.down_proj.weight", ("hidden", "ffn"), f"{_N}/FFN/down", "layers.{i}.ffn2.weight"),
    Weight(f"{_L}.input_layernorm.weight", ("hidden",), f"{_N}/RMSNorm 1", "layers.{i}.norm1.weight"),
    Weight(
        f"{_L}.post_attention_layernorm.weight", ("hidden",), f"{_N}/RMSNorm 2", "layers.{i}.norm2.weight"
    ),
    Weight("model.norm.weight", ("hidden",), "RMSNorm", "norm.weight"),
    Weight("lm_head.weight", ("vocab", "hidden"), "head", "head.weight", untied=True),
)


def further(config):
    return rope.further(config.more)


more = rope.more
