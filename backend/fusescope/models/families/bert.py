"""BERT: bidirectional encoder, LayerNorm after each residual sum (Devlin et al. 2018, arXiv 1810.04805)."""

from __future__ import annotations

from fusescope.models.describe.family import Config, Split, Weight, dense, norm
from fusescope.models.describe.settings import Settings

KIND = "encoder"
PHASES = ()
_COMMON = dict(vocab=30522, positions=512, types=2)
NAMES = {
    "bert-small": Config("bert-small", 512, 4, 8, 64, 2048, **_COMMON),
    "bert-base": Config("bert-base", 768, 12, 12, 64, 3072, **_COMMON),
    "bert-large": Config("bert-large", 1024, 24, 16, 64, 4096, **_COMMON),
}
TITLE = {"bert-small": "BERT small", "bert-base": "BERT base", "bert-large": "BERT large"}
SETTINGS = Settings(
    "BERT",
    "bert",
    "BertConfig",
    "BertModel",
    {
        "hidden": "hidden_size",
        "layers": "num_hidden_layers",
        "heads": "num_attention_heads",
        "ffn": "intermediate_size",
        "vocab": "vocab_size",
        "positions": "max_position_embeddings",
        "types": "type_vocab_size",
        "eps": "layer_norm_eps",
        "activation": "hidden_act",
    },
    {"types": 2, "eps": 1e-12, "activation": "gelu"},
    activations=("gelu", "gelu_new", "gelu_pytorch_tanh"),
)
STRUCTURE = "norm after"
MODULES = {
    "embedded": "embeddings",
    "context": "encoder.layer.{i}.attention.self",
    "attended": "encoder.layer.{i}.attention.output",
    "inner": "encoder.layer.{i}.intermediate",
    "out": "encoder.layer.{i}.output",
}
PARALLEL = Split(
    "encoder.layer",
    columns=("attention.self.query", "attention.self.key", "attention.self.value", "intermediate.dense"),
    rows=("attention.output.dense", "output.dense"),
    inputs=("embeddings",),
)
PREFIXES = ("", "bert.")
IGNORED = ("cls.*", "classifier.*", "qa_outputs.*", "*position_ids", "*token_type_ids")

_L = "encoder.layer.{i}"
_A = "encoder/layer {i}/attention"
WEIGHTS = (
    Weight("embeddings.word_embeddings.weight", ("vocab", "hidden"), "embeddings/word", "word"),
    Weight(
        "embeddings.position_embeddings.weight", ("positions", "hidden"), "embeddings/position", "position"
    ),
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
