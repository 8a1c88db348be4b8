"""BERT: bidirectional encoder, LayerNorm after each residual sum (Devlin et al. 2018, arXiv 1810.04805)."""

from __future__ import annotations

from dataclasses import replace

from backend.models.families._base import Config, Weight, dense, need, norm, width

KIND = "encoder"
PHASES = ()
_COMMON = dict(vocab=30522, positions=512, types=2)
NAMES = {
    "bert-small": Config("bert-small", 512, 4, 8, 64, 2048, **_COMMON),
    "bert-base": Config("bert-base", 768, 12, 12, 64, 3072, **_COMMON),
    "bert-large": Config("bert-large", 1024, 24, 16, 64, 4096, **_COMMON),
}
TITLE = {"bert-small": "BERT small", "bert-base": "BERT base", "bert-large": "BERT large"}
STRUCTURE = "norm after"
MODULES = {
    "embedded": "embeddings",
    "context": "encoder.layer.{i}.attention.self",
    "attended": "encoder.layer.{i}.attention.output",
    "inner": "encoder.layer.{i}.intermediate",
    "out": "encoder.layer.{i}.output",
}
PREFIXES = ("", "bert.")
IGNORED = ("cls.*", "classifier.*", "qa_outputs.*", "*position_ids", "*token_type_ids")

_L = "encoder.layer.{i}"
_A = "encoder/layer {i}/attention"
WEIGHTS = (
    Weight("embeddings.word_embeddings.weight", ("vocab", "hidden"), "embeddings/word", "word"),
    Weight("embeddings.position_embeddings.weight", ("positions", "hidden"), "embeddings/position", "position"),
    Weight("embeddings.token_type_embeddings.weight", ("types", "hidden"), "embeddings/token type", "type"),
    *norm("embeddings.LayerNorm", "embeddings/LayerNorm", "norm"),
    *dense(f"{_L}.attention.self.query", "inner", "hidden", f"{_A}/query", "layers.{i}.qkv"),
    *dense(f"{_L}.attention.self.key", "inner", "hidden", f"{_A}/key", "layers.{i}.qkv"),
    *dense(f"{_L}.attention.self.value", "inner", "hidden", f"{_A}/value", "layers.{i}.qkv"),
    *dense(f"{_L}.attention.output.dense", "hidden", "inner", f"{_A}/output", "layers.{i}.output"),
    *norm(f"{_L}.attention.output.LayerNorm", f"{_A}/LayerNorm", "layers.{i}.norm1"),
    *dense(f"{_L}.intermediate.dense", "ffn", "hidden", "encoder/layer {i}/intermediate", "layers.{i}.ffn1"),
    *dense(f"{_L}.output.dense", "hidden", "ffn", "encoder/layer {i}/output/dense", "layers.{i}.ffn2"),
    *norm(f"{_L}.output.LayerNorm", "encoder/layer {i}/output/LayerNorm", "layers.{i}.norm2"),
    *dense("pooler.dense", "hidden", "hidden", "pooler", optional=True),
)


def sizes(config, heads, head_dim, layers, seq):
    hidden, heads, head_dim = width(config, heads, head_dim)
    ffn = config.ffn if hidden == config.hidden else config.ffn * hidden // config.hidden
    positions = max(config.positions, seq)
    return replace(
        config, hidden=hidden, heads=heads, head_dim=head_dim, ffn=ffn, layers=layers or config.layers, positions=positions
    )


def hugging_face(config):
    return (
        "BertConfig",
        dict(
            vocab_size=config.vocab,
            hidden_size=config.hidden,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            intermediate_size=config.ffn,
            max_position_embeddings=config.positions,
            type_vocab_size=config.types,
            layer_norm_eps=config.eps,
            hidden_act="gelu" if config.activation == "gelu" else "gelu_new",
        ),
        "BertModel",
    )


def from_hugging_face(data):
    if data.get("model_type") != "bert":
        raise ValueError(f"a BERT checkpoint's config.json has model_type bert, not {data.get('model_type')!r}")
    hidden, heads, layers, ffn, vocab, positions = need(
        data,
        "hidden_size",
        "num_attention_heads",
        "num_hidden_layers",
        "intermediate_size",
        "vocab_size",
        "max_position_embeddings",
    )
    if hidden % heads:
        raise ValueError(f"heads divides the width; the checkpoint's config.json says {heads} heads and width {hidden}")
    activation = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh"}.get(data.get("hidden_act", "gelu"))
    if activation is None:
        raise ValueError(f"hidden_act of a BERT checkpoint is gelu or gelu_new, not {data['hidden_act']!r}")
    types, eps = data.get("type_vocab_size", 2), data.get("layer_norm_eps", 1e-12)
    return Config("checkpoint", hidden, layers, heads, hidden // heads, ffn, vocab, 0, positions, types, float(eps), activation)
