"""GPT-2: causal decoder with learned positions, LayerNorm before attention and FFN (Radford et al. 2019)."""

from __future__ import annotations

from dataclasses import replace

from backend.models.families._base import Config, Weight, need, norm, width

KIND = "decoder"
PHASES = ("prefill", "decode")
NAMES = {"gpt2": Config("gpt2", 768, 12, 12, 64, 3072, vocab=50257, positions=1024, eps=1e-5, activation="gelu_tanh")}
TITLE = {"gpt2": "GPT-2 small"}
STRUCTURE = None
PREFIXES = ("", "transformer.")
IGNORED = ("lm_head.weight", "*.attn.bias", "*.attn.masked_bias")
MASK = "causal"

_L, _N = "transformer.h.{i}", "decoder/layer {i}"


def _conv(theirs: str, rows, cols, node: str) -> list[Weight]:
    """GPT-2 holds its linear layers as (in, out)."""
    return [
        Weight(f"{theirs}.weight", (rows, cols), node, transposed=True),
        Weight(f"{theirs}.bias", (cols,), node),
    ]


WEIGHTS = (
    Weight("transformer.wte.weight", ("vocab", "hidden"), "embeddings/word"),
    Weight("transformer.wpe.weight", ("positions", "hidden"), "embeddings/position"),
    *norm(f"{_L}.ln_1", f"{_N}/LayerNorm 1"),
    *_conv(f"{_L}.attn.c_attn", "hidden", "qkv_inner", f"{_N}/attention/query, key, value"),
    *_conv(f"{_L}.attn.c_proj", "inner", "hidden", f"{_N}/attention/output"),
    *norm(f"{_L}.ln_2", f"{_N}/LayerNorm 2"),
    *_conv(f"{_L}.mlp.c_fc", "hidden", "ffn", f"{_N}/intermediate"),
    *_conv(f"{_L}.mlp.c_proj", "ffn", "hidden", f"{_N}/output"),
    *norm("transformer.ln_f", "LayerNorm"),
)


def sizes(config, heads, head_dim, layers, seq):
    hidden, heads, head_dim = width(config, heads, head_dim)
    ffn = config.ffn if hidden == config.hidden else config.ffn * hidden // config.hidden
    positions = max(config.positions, seq + 1)  # a decoded token stands after the seq tokens of the cache
    return replace(
        config, hidden=hidden, heads=heads, head_dim=head_dim, ffn=ffn, layers=layers or config.layers, positions=positions
    )


def hugging_face(config):
    return (
        "GPT2Config",
        dict(
            vocab_size=config.vocab,
            n_embd=config.hidden,
            n_layer=config.layers,
            n_head=config.heads,
            n_inner=config.ffn,
            n_positions=config.positions,
            layer_norm_epsilon=config.eps,
            activation_function="gelu_new",
        ),
        "GPT2LMHeadModel",
    )


def from_hugging_face(data):
    if data.get("model_type") != "gpt2":
        raise ValueError(f"a GPT-2 checkpoint's config.json has model_type gpt2, not {data.get('model_type')!r}")
    hidden, heads, layers, vocab, positions = need(data, "n_embd", "n_head", "n_layer", "vocab_size", "n_positions")
    if hidden % heads:
        raise ValueError(f"heads divides the width; the checkpoint's config.json says {heads} heads and width {hidden}")
    if data.get("activation_function", "gelu_new") != "gelu_new":
        raise ValueError(f"activation_function of a GPT-2 checkpoint is gelu_new, not {data['activation_function']!r}")
    eps = float(data.get("layer_norm_epsilon", 1e-5))
    return Config(
        "checkpoint",
        hidden,
        layers,
        heads,
        hidden // heads,
        data.get("n_inner") or 4 * hidden,
        vocab,
        0,
        positions,
        0,
        eps,
        "gelu_tanh",
    )
