"""T5: encoder and decoder with relative position biases added to the scores, which are not scaled (Raffel et
al. 2019, arXiv 1910.10683).

A case feeds as many tokens to the decoder as to the encoder; lengths hold for the encoder's.
"""

from __future__ import annotations

from fusescope.models.describe.family import Config, Weight
from fusescope.models.describe.settings import Settings

KIND = "encoder-decoder"
PHASES = ()
FREE_HEADS = True
NAMES = {
    "t5-small": Config(
        "t5-small", 512, 6, 8, 64, 2048, vocab=32128, eps=1e-6, activation="relu", more={"buckets": 32}
    )
}
TITLE = {"t5-small": "T5 small"}
SETTINGS = Settings(
    "T5",
    "t5",
    "T5Config",
    "T5Model",
    {
        "hidden": "d_model",
        "head_dim": "d_kv",
        "ffn": "d_ff",
        "layers": "num_layers",
        "heads": "num_heads",
        "vocab": "vocab_size",
        "buckets": "relative_attention_num_buckets",
        "eps": "layer_norm_epsilon",
        "activation": "feed_forward_proj",
    },
    {"buckets": 32, "eps": 1e-6, "activation": "relu"},
    activations=("relu",),
    deviation=None,  # its own rule has that effect
)
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
    shapes = {
        "q": ("inner", "hidden"),
        "k": ("inner", "hidden"),
        "v": ("inner", "hidden"),
        "o": ("hidden", "inner"),
    }
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
            f"{name}.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
            ("buckets", "heads"),
            f"{name}/position bias",
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


def further(config):
    return {"num_decoder_layers": config.layers, "pad_token_id": 0, "decoder_start_token_id": 0}


def more(data):
    layers, decoder = data["num_layers"], data.get("num_decoder_layers")
    if decoder not in (None, layers):
        raise ValueError(
            f"a T5 checkpoint has as many decoder as encoder layers; its config.json says {decoder} and "
            f"{layers}"
        )
    return {}
