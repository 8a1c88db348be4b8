"""ViT: an encoder over image patches, LayerNorm before attention and FFN (Dosovitskiy et al. 2020, arXiv 2010.11929).

A sequence is the patches of a square image and the class token: seq = (image / patch)² + 1, 197 for 224 pixels.
"""

from __future__ import annotations

import math
from dataclasses import replace

from backend.models.families._base import Config, Weight, dense, need, norm, width

KIND = "encoder"
PHASES = ()
NAMES = {"vit-base": Config("vit-base", 768, 12, 12, 64, 3072, positions=197, patch=16, channels=3)}
TITLE = {"vit-base": "ViT base, 16-pixel patches"}
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
    Weight("embeddings.patch_embeddings.projection.weight", ("hidden", "channels", "patch", "patch"), "embeddings/patches", "patch.weight"),
    Weight("embeddings.patch_embeddings.projection.bias", ("hidden",), "embeddings/patches", "patch.bias"),
    *dense(f"{_L}.attention.q_proj", "inner", "hidden", f"{_N}/attention/query", "layers.{i}.qkv", (f"{_O}.attention.attention.query",)),
    *dense(f"{_L}.attention.k_proj", "inner", "hidden", f"{_N}/attention/key", "layers.{i}.qkv", (f"{_O}.attention.attention.key",)),
    *dense(f"{_L}.attention.v_proj", "inner", "hidden", f"{_N}/attention/value", "layers.{i}.qkv", (f"{_O}.attention.attention.value",)),
    *dense(f"{_L}.attention.o_proj", "hidden", "inner", f"{_N}/attention/output", "layers.{i}.output", (f"{_O}.attention.output.dense",)),
    *norm(f"{_L}.layernorm_before", f"{_N}/LayerNorm before", "layers.{i}.norm1", (f"{_O}.layernorm_before",)),
    *norm(f"{_L}.layernorm_after", f"{_N}/LayerNorm after", "layers.{i}.norm2", (f"{_O}.layernorm_after",)),
    *dense(f"{_L}.mlp.fc1", "ffn", "hidden", f"{_N}/intermediate", "layers.{i}.ffn1", (f"{_O}.intermediate.dense",)),
    *dense(f"{_L}.mlp.fc2", "hidden", "ffn", f"{_N}/output", "layers.{i}.ffn2", (f"{_O}.output.dense",)),
    *norm("layernorm", "LayerNorm", "norm"),
    *dense("pooler.dense", "hidden", "hidden", "pooler", optional=True),
)  # fmt: skip


def sizes(config, heads, head_dim, layers, seq):
    side = math.isqrt(seq - 1) if seq > 1 else 0
    if side * side != seq - 1 or side == 0:
        near = max(1, round(math.sqrt(max(seq - 1, 1))))
        raise ValueError(f"seq of a ViT is a square of patches and the class token, such as {near * near + 1}, not {seq}")
    hidden, heads, head_dim = width(config, heads, head_dim)
    ffn = config.ffn if hidden == config.hidden else config.ffn * hidden // config.hidden
    return replace(config, hidden=hidden, heads=heads, head_dim=head_dim, ffn=ffn, layers=layers or config.layers, positions=seq)


def hugging_face(config):
    return (
        "ViTConfig",
        dict(
            hidden_size=config.hidden,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            intermediate_size=config.ffn,
            layer_norm_eps=config.eps,
            hidden_act="gelu" if config.activation == "gelu" else "gelu_new",
            image_size=math.isqrt(config.positions - 1) * config.patch,
            patch_size=config.patch,
            num_channels=config.channels,
        ),
        "ViTModel",
    )


def from_hugging_face(data):
    if data.get("model_type") != "vit":
        raise ValueError(f"a ViT checkpoint's config.json has model_type vit, not {data.get('model_type')!r}")
    hidden, heads, layers, ffn = need(data, "hidden_size", "num_attention_heads", "num_hidden_layers", "intermediate_size")
    image, patch = data.get("image_size", 224), data.get("patch_size", 16)
    if hidden % heads:
        raise ValueError(f"heads divides the width; the checkpoint's config.json says {heads} heads and width {hidden}")
    if not isinstance(image, int) or not isinstance(patch, int) or image % patch:
        raise ValueError(
            f"a ViT's image is square and a multiple of its patch; the checkpoint's config.json says {image} and {patch}"
        )
    if not data.get("qkv_bias", True):
        raise ValueError("a ViT has biases of query, key and value; the checkpoint's config.json says qkv_bias false")
    if data.get("hidden_act", "gelu") != "gelu":
        raise ValueError(f"hidden_act of a ViT checkpoint is gelu, not {data['hidden_act']!r}")
    positions, eps = (image // patch) ** 2 + 1, float(data.get("layer_norm_eps", 1e-12))
    return Config(
        "checkpoint", hidden, layers, heads, hidden // heads, ffn, positions=positions, eps=eps, patch=patch,
        channels=data.get("num_channels", 3),
    )  # fmt: skip
