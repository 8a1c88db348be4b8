"""ViT: an encoder over image patches, LayerNorm before attention and FFN (Dosovitskiy et al. 2020, arXiv
2010.11929).

A sequence is the patches of a square image and the class token: seq = (image / patch)² + 1, 197 for 224
pixels.
"""

from __future__ import annotations

from fusescope.models.describe.family import Config, Weight, dense, norm
from fusescope.models.describe.settings import Settings

KIND = "encoder"
PHASES = ()
_COMMON = dict(positions=197, patch=16, channels=3)
NAMES = {
    "vit-base": Config("vit-base", 768, 12, 12, 64, 3072, **_COMMON),
    "vit-large": Config("vit-large", 1024, 24, 16, 64, 4096, **_COMMON),
}
TITLE = {"vit-base": "ViT base, 16-pixel patches", "vit-large": "ViT large, 16-pixel patches"}
SETTINGS = Settings(
    "ViT",
    "vit",
    "ViTConfig",
    "ViTModel",
    {
        "hidden": "hidden_size",
        "layers": "num_hidden_layers",
        "heads": "num_attention_heads",
        "ffn": "intermediate_size",
        "image": "image_size",
        "patch": "patch_size",
        "channels": "num_channels",
        "eps": "layer_norm_eps",
        "activation": "hidden_act",
    },
    {"image": 224, "patch": 16, "channels": 3, "eps": 1e-12, "activation": "gelu"},
    {"qkv_bias": True},
    ("gelu", "gelu_new", "gelu_pytorch_tanh"),
)
STRUCTURE = "norm before"
MODULES = {
    "embedded": "embeddings",
    "before": "layers.{i}.layernorm_before",
    "after": "layers.{i}.layernorm_after",
    "inner": "layers.{i}.mlp.activation_fn",
    "out": "layers.{i}",
    "last": "layernorm",
}
PREFIXES = ("", "vit.")
IGNORED = ("classifier.*", "decoder.*", "*mask_token")
SEQ = 197

_L, _O = "layers.{i}", "encoder.layer.{i}"  # today's names, and those of published checkpoints
_N = "encoder/layer {i}"
WEIGHTS = (
    Weight("embeddings.cls_token", (1, 1, "hidden"), "embeddings/class token", "cls"),
    Weight("embeddings.position_embeddings", (1, "positions", "hidden"), "embeddings/position", "position"),
    Weight(
        "embeddings.patch_embeddings.projection.weight",
        ("hidden", "channels", "patch", "patch"),
        "embeddings/patches",
        "patch.weight",
    ),
    Weight("embeddings.patch_embeddings.projection.bias", ("hidden",), "embeddings/patches", "patch.bias"),
    *dense(
        f"{_L}.attention.q_proj",
        "inner",
        "hidden",
        f"{_N}/attention/query",
        "layers.{i}.qkv",
        (f"{_O}.attention.attention.query",),
    ),
    *dense(
        f"{_L}.attention.k_proj",
        "inner",
        "hidden",
        f"{_N}/attention/key",
        "layers.{i}.qkv",
        (f"{_O}.attention.attention.key",),
    ),
    *dense(
        f"{_L}.attention.v_proj",
        "inner",
        "hidden",
        f"{_N}/attention/value",
        "layers.{i}.qkv",
        (f"{_O}.attention.attention.value",),
    ),
    *dense(
        f"{_L}.attention.o_proj",
        "hidden",
        "inner",
        f"{_N}/attention/output",
        "layers.{i}.output",
        (f"{_O}.attention.output.dense",),
    ),
    *norm(
        f"{_L}.layernorm_before", f"{_N}/LayerNorm before", "layers.{i}.norm1", (f"{_O}.layernorm_before",)
    ),
    *norm(f"{_L}.layernorm_after", f"{_N}/LayerNorm after", "layers.{i}.norm2", (f"{_O}.layernorm_after",)),
    *dense(
        f"{_L}.mlp.fc1",
        "ffn",
        "hidden",
        f"{_N}/intermediate",
        "layers.{i}.ffn1",
        (f"{_O}.intermediate.dense",),
    ),
    *dense(f"{_L}.mlp.fc2", "hidden", "ffn", f"{_N}/output", "layers.{i}.ffn2", (f"{_O}.output.dense",)),
    *norm("layernorm", "LayerNorm", "norm"),
    *dense("pooler.dense", "hidden", "hidden", "pooler", optional=True),
)
