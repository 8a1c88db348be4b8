"""GPT-2: causal decoder with learned positions, LayerNorm before attention and FFN (Radford et al. 2019)."""

from __future__ import annotations

from fusescope.models.describe.family import Config, Split, Weight, norm
from fusescope.models.describe.settings import Settings

KIND = "decoder"
PHASES = ("prefill", "decode")
_COMMON = dict(vocab=50257, positions=1024, eps=1e-5, activation="gelu_tanh")
NAMES = {
    "gpt2": Config("gpt2", 768, 12, 12, 64, 3072, **_COMMON),
    "gpt2-medium": Config("gpt2-medium", 1024, 24, 16, 64, 4096, **_COMMON),
    "gpt2-large": Config("gpt2-large", 1280, 36, 20, 64, 5120, **_COMMON),
    "gpt2-xl": Config("gpt2-xl", 1600, 48, 25, 64, 6400, **_COMMON),
}
TITLE = {
    "gpt2": "GPT-2 small",
    "gpt2-medium": "GPT-2 medium",
    "gpt2-large": "GPT-2 large",
    "gpt2-xl": "GPT-2 XL",
}
SETTINGS = Settings(
    "GPT-2",
    "gpt2",
    "GPT2Config",
    "GPT2LMHeadModel",
    {
        "hidden": "n_embd",
        "layers": "n_layer",
        "heads": "n_head",
        "ffn": "n_inner",
        "vocab": "vocab_size",
        "positions": "n_positions",
        "eps": "layer_norm_epsilon",
        "activation": "activation_function",
        "tied": "tie_word_embeddings",
    },
    {"ffn": None, "eps": 1e-5, "activation": "gelu_new", "tied": True},
    {"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False, "add_cross_attention": False},
    activations=("gelu_new", "gelu_pytorch_tanh"),
)
STRUCTURE = "decoder"
MODULES = {
    "before": "transformer.h.{i}.ln_1",
    "qkv": "transformer.h.{i}.attn.c_attn",
    "context": "transformer.h.{i}.attn:context",
    "after": "transformer.h.{i}.ln_2",
    "inner": "transformer.h.{i}.mlp.act",
    "out": "transformer.h.{i}",
    "last": "transformer.ln_f",
    "logits": "lm_head",
}
PARALLEL = Split(
    "h",
    columns=("mlp.c_fc",),
    rows=("attn.c_proj", "mlp.c_proj"),
    packed=("attn.c_attn",),
    positions=("wpe",),
    norm="ln_f",
)
PREFIXES = ("", "transformer.")
IGNORED = ("lm_head.weight", "*.attn.bias", "*.attn.masked_bias")
MASK = "causal"

_L, _N = "transformer.h.{i}", "decoder/layer {i}"


def _conv(theirs: str, rows, cols, node: str, ours: str) -> list[Weight]:
    """GPT-2 holds its linear layers as (in, out)."""
    ours = f"layers.{{i}}.{ours}"
    return [
        Weight(f"{theirs}.weight", (rows, cols), node, f"{ours}.weight", transposed=True),
        Weight(f"{theirs}.bias", (cols,), node, f"{ours}.bias"),
    ]


WEIGHTS = (
    Weight("transformer.wte.weight", ("vocab", "hidden"), "embeddings/word", "word"),
    Weight("transformer.wpe.weight", ("positions", "hidden"), "embeddings/position", "position"),
    *norm(f"{_L}.ln_1", f"{_N}/LayerNorm 1", "layers.{i}.norm1"),
    *_conv(f"{_L}.attn.c_attn", "hidden", "qkv_inner", f"{_N}/attention/query, key, value", "qkv"),
    *_conv(f"{_L}.attn.c_proj", "inner", "hidden", f"{_N}/attention/output", "output"),
    *norm(f"{_L}.ln_2", f"{_N}/LayerNorm 2", "layers.{i}.norm2"),
    *_conv(f"{_L}.mlp.c_fc", "hidden", "ffn", f"{_N}/intermediate", "ffn1"),
    *_conv(f"{_L}.mlp.c_proj", "ffn", "hidden", f"{_N}/output", "ffn2"),
    *norm("transformer.ln_f", "LayerNorm", "norm"),
    Weight("lm_head.weight", ("vocab", "hidden"), "head", "head.weight", untied=True),
)
