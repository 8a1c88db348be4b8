"""A Llama-style decoder: RMSNorm, rotary positions, grouped KV heads, gated FFN (Touvron et al. 2023, arXiv 2302.13971).

llama-small is a configuration of this project, the size of GPT-2 small: width 768, 12 layers, 12 heads on 4 KV heads of 64, FFN
2048, 32,000 words, tables of 2048 positions that grow by config, head apart from the word table.
"""

from __future__ import annotations

from dataclasses import replace

from backend.models.families._base import Config, Weight, need, width

KIND = "decoder"
PHASES = ("prefill", "decode")
NAMES = {
    "llama-small": Config(
        "llama-small", 768, 12, 12, 64, 2048, vocab=32000, kv_heads=4, positions=2048, eps=1e-5, activation="silu", tied=False,
        more={"rope_theta": 10000.0},
    )
}  # fmt: skip
TITLE = {"llama-small": "Llama-style, 125 M parameters"}
STRUCTURE = None
PREFIXES = ("",)
IGNORED = ("*rotary_emb.inv_freq",)
MASK = "causal"

_L, _N = "model.layers.{i}", "decoder/layer {i}"
WEIGHTS = (
    Weight("model.embed_tokens.weight", ("vocab", "hidden"), "embeddings/word"),
    Weight(f"{_L}.self_attn.q_proj.weight", ("inner", "hidden"), f"{_N}/attention/query"),
    Weight(f"{_L}.self_attn.k_proj.weight", ("kv_inner", "hidden"), f"{_N}/attention/key"),
    Weight(f"{_L}.self_attn.v_proj.weight", ("kv_inner", "hidden"), f"{_N}/attention/value"),
    Weight(f"{_L}.self_attn.o_proj.weight", ("hidden", "inner"), f"{_N}/attention/output"),
    Weight(f"{_L}.mlp.gate_proj.weight", ("ffn", "hidden"), f"{_N}/FFN/gate"),
    Weight(f"{_L}.mlp.up_proj.weight", ("ffn", "hidden"), f"{_N}/FFN/up"),
    Weight(f"{_L}.mlp.down_proj.weight", ("hidden", "ffn"), f"{_N}/FFN/down"),
    Weight(f"{_L}.input_layernorm.weight", ("hidden",), f"{_N}/RMSNorm 1"),
    Weight(f"{_L}.post_attention_layernorm.weight", ("hidden",), f"{_N}/RMSNorm 2"),
    Weight("model.norm.weight", ("hidden",), "RMSNorm"),
    Weight("lm_head.weight", ("vocab", "hidden"), "head", untied=True),
)


def sizes(config, heads, head_dim, layers, seq):
    hidden, heads, head_dim = width(config, heads, head_dim)
    ffn = config.ffn if hidden == config.hidden else config.ffn * hidden // config.hidden
    group = config.heads // config.kv_heads
    kv_heads = heads // group if heads % group == 0 else heads
    positions = max(config.positions, seq + 1)
    return replace(
        config, hidden=hidden, heads=heads, kv_heads=kv_heads, head_dim=head_dim, ffn=ffn, layers=layers or config.layers, positions=positions
    )  # fmt: skip


def hugging_face(config):
    return (
        "LlamaConfig",
        dict(
            vocab_size=config.vocab,
            hidden_size=config.hidden,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            num_key_value_heads=config.kv_heads,
            head_dim=config.head_dim,
            intermediate_size=config.ffn,
            max_position_embeddings=config.positions,
            rms_norm_eps=config.eps,
            rope_parameters={"rope_type": "default", "rope_theta": config.more["rope_theta"]},
            tie_word_embeddings=config.tied,
        ),
        "LlamaForCausalLM",
    )


def from_hugging_face(data):
    if data.get("model_type") != "llama":
        raise ValueError(f"a Llama checkpoint's config.json has model_type llama, not {data.get('model_type')!r}")
    hidden, heads, layers, ffn, vocab, positions = need(
        data,
        "hidden_size",
        "num_attention_heads",
        "num_hidden_layers",
        "intermediate_size",
        "vocab_size",
        "max_position_embeddings",
    )
    rope = data.get("rope_parameters") or data.get("rope_scaling") or {}
    if rope.get("rope_type", rope.get("type", "default")) != "default":
        raise ValueError(
            f"rotary positions of a Llama checkpoint are of the default kind, not {rope.get('rope_type', rope.get('type'))!r}"
        )
    if data.get("attention_bias") or data.get("mlp_bias"):
        raise ValueError("a Llama checkpoint has no biases; its config.json says attention_bias or mlp_bias true")
    kv, head_dim = data.get("num_key_value_heads") or heads, data.get("head_dim") or hidden // heads
    if heads % kv:
        raise ValueError(f"heads is a multiple of KV heads; the checkpoint's config.json says {heads} and {kv}")
    theta = float(rope.get("rope_theta") or data.get("rope_theta") or 10000.0)
    return Config(
        "checkpoint", hidden, layers, heads, head_dim, ffn, vocab, kv, positions, 0, float(data.get("rms_norm_eps", 1e-6)), "silu",
        tied=bool(data.get("tie_word_embeddings", False)), more={"rope_theta": theta},
    )  # fmt: skip
