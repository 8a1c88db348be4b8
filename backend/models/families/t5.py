"""T5: encoder and decoder with relative position biases added to the scores, which are not scaled (Raffel et al. 2019, arXiv 1910.10683).

A case feeds as many tokens to the decoder as to the encoder; lengths hold for the encoder's.
"""

from __future__ import annotations

from dataclasses import replace

from backend.models.families._base import Config, Weight, need

KIND = "encoder-decoder"
PHASES = ()
NAMES = {
    "t5-small": Config("t5-small", 512, 6, 8, 64, 2048, vocab=32128, eps=1e-6, activation="relu", more={"buckets": 32}),
}
TITLE = {"t5-small": "T5 small"}
STRUCTURE = None
PREFIXES = ("",)
IGNORED = (
    "lm_head.weight",
    "encoder.embed_tokens.weight",
    "decoder.embed_tokens.weight",
    "*.EncDecAttention.relative_attention_bias.weight",
)


def _attention(stack: str, at: int, kind: str) -> list[Weight]:
    where, node = (
        f"{stack}.block.{{i}}.layer.{at}",
        f"{stack}/layer {{i}}/{'attention' if kind == 'SelfAttention' else 'cross attention'}",
    )
    shapes = {"q": ("inner", "hidden"), "k": ("inner", "hidden"), "v": ("inner", "hidden"), "o": ("hidden", "inner")}
    words = {"q": "query", "k": "key", "v": "value", "o": "output"}
    found = [Weight(f"{where}.{kind}.{n}.weight", shape, f"{node}/{words[n]}") for n, shape in shapes.items()]
    return [*found, Weight(f"{where}.layer_norm.weight", ("hidden",), f"{node}/RMSNorm")]


def _ffn(stack: str, at: int) -> list[Weight]:
    where, node = f"{stack}.block.{{i}}.layer.{at}", f"{stack}/layer {{i}}/FFN"
    return [
        Weight(f"{where}.DenseReluDense.wi.weight", ("ffn", "hidden"), f"{node}/inner"),
        Weight(f"{where}.DenseReluDense.wo.weight", ("hidden", "ffn"), f"{node}/outer"),
        Weight(f"{where}.layer_norm.weight", ("hidden",), f"{node}/RMSNorm"),
    ]


def _stack(name: str) -> list[Weight]:
    cross = _attention(name, 1, "EncDecAttention") if name == "decoder" else []
    return [
        *_attention(name, 0, "SelfAttention"),
        Weight(
            f"{name}.block.0.layer.0.SelfAttention.relative_attention_bias.weight", ("buckets", "heads"), f"{name}/position bias"
        ),
        *cross,
        *_ffn(name, 2 if cross else 1),
        Weight(f"{name}.final_layer_norm.weight", ("hidden",), f"{name}/RMSNorm"),
    ]


WEIGHTS = (
    Weight("shared.weight", ("vocab", "hidden"), "embeddings/word", also=("encoder.embed_tokens.weight",)),
    *_stack("encoder"),
    *_stack("decoder"),
)


def sizes(config, heads, head_dim, layers, seq):
    """Heads and head size need not make up the width in T5."""
    return replace(config, heads=heads or config.heads, head_dim=head_dim or config.head_dim, layers=layers or config.layers)


def hugging_face(config):
    return (
        "T5Config",
        dict(
            vocab_size=config.vocab,
            d_model=config.hidden,
            d_kv=config.head_dim,
            d_ff=config.ffn,
            num_layers=config.layers,
            num_decoder_layers=config.layers,
            num_heads=config.heads,
            relative_attention_num_buckets=config.more["buckets"],
            layer_norm_epsilon=config.eps,
            feed_forward_proj="relu",
            pad_token_id=0,
            decoder_start_token_id=0,
        ),
        "T5Model",
    )


def from_hugging_face(data):
    if data.get("model_type") != "t5":
        raise ValueError(f"a T5 checkpoint's config.json has model_type t5, not {data.get('model_type')!r}")
    hidden, heads, head_dim, layers, ffn, vocab = need(data, "d_model", "num_heads", "d_kv", "num_layers", "d_ff", "vocab_size")
    if data.get("feed_forward_proj", "relu") != "relu":
        raise ValueError(f"feed_forward_proj of a T5 checkpoint is relu (T5 1.0), not {data['feed_forward_proj']!r}")
    if (data.get("num_decoder_layers") or layers) != layers:
        raise ValueError(
            f"a T5 checkpoint has as many decoder as encoder layers; its config.json says {data['num_decoder_layers']} and {layers}"
        )
    return Config(
        "checkpoint", hidden, layers, heads, head_dim, ffn, vocab, eps=float(data.get("layer_norm_epsilon", 1e-6)), activation="relu",
        more={"buckets": data.get("relative_attention_num_buckets", 32)},
    )  # fmt: skip
