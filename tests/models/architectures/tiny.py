"""Every causal, masked, encoder-decoder, speech and vision class of the installed transformers, and the base
class of what has none of them, as a tiny random model with a padded batch."""

from __future__ import annotations

import dataclasses
import inspect
from functools import cache

from tests.models.architectures.overrides import OVERRIDES

KINDS = {
    "causal": "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "masked": "MODEL_FOR_MASKED_LM_MAPPING_NAMES",
    "seq2seq": "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
    "speech": "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES",
    "vision": "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES",
    "base": "MODEL_MAPPING_NAMES",
}
TOKENS = 13
_WIDTH = (
    "hidden_size d_model n_embd dim embed_dim width encoder_hidden_dim d_embed word_embed_proj_dim "
    "embedding_size emb_dim model_dim hidden_dim projection_dim cross_attention_hidden_size "
    "encoder_hidden_size decoder_hidden_size vision_feature_dim out_hidden_size"
)
_INNER = (
    "intermediate_size ffn_dim encoder_ffn_dim decoder_ffn_dim d_ff n_inner moe_intermediate_size "
    "ffn_hidden_size feed_forward_proj_dim dim_feedforward mlp_dim shared_expert_intermediate_size "
    "encoder_ffn_size decoder_ffn_size d_inner expert_ffn_hidden_size"
)
_LAYERS = (
    "num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers num_decoder_layers "
    "encoder_layerdrop_layers num_encoder_layers depth num_local_layers"
)
_HEADS = (
    "num_attention_heads n_head n_heads num_heads encoder_attention_heads decoder_attention_heads "
    "encoder_num_attention_heads decoder_num_attention_heads num_encoder_attention_heads "
    "num_decoder_attention_heads"
)
_KV_HEADS = (
    "num_key_value_heads num_kv_heads n_head_kv n_kv_heads encoder_num_key_value_heads "
    "decoder_num_key_value_heads"
)
_EXPERTS = "num_experts num_local_experts n_routed_experts moe_num_experts num_expert"
SIZES = (
    dict.fromkeys(_WIDTH.split(), 64)
    | dict.fromkeys(_INNER.split(), 64)
    | dict.fromkeys(_LAYERS.split(), 2)
    | dict.fromkeys(_HEADS.split(), 2)
    | dict.fromkeys(_KV_HEADS.split(), 1)
    | dict.fromkeys(_EXPERTS.split(), 4)
    | dict.fromkeys(["head_dim", "d_kv", "attention_head_dim", "kv_channels"], 32)
    | dict.fromkeys(["vocab_size", "text_vocab_size", "decoder_vocab_size"], 99)
    | dict.fromkeys(["image_size", "input_size"], 32)
    | dict.fromkeys(["max_position_embeddings", "n_positions", "max_target_positions", "n_ctx"], 64)
    | dict.fromkeys(["pad_token_id"], 0)
    | dict.fromkeys(["bos_token_id", "decoder_start_token_id"], 1)
    | dict.fromkeys(["eos_token_id", "sep_token_id"], 2)
    | dict.fromkeys(["image_token_id", "image_token_index", "video_token_id", "audio_token_id"], 98)
    | {"patch_size": 8, "num_mel_bins": 8, "max_source_positions": 16, "num_experts_per_tok": 2}
    | {"n_group": 1, "topk_group": 1}
)


@cache
def classes() -> dict[str, tuple[str, str]]:
    """{class name: (kind, model type)}."""
    import transformers
    from transformers.models.auto import modeling_auto

    found: dict[str, tuple[str, str]] = {}
    known = set(dir(transformers))
    for kind, mapping in KINDS.items():
        have = {model_type for _, model_type in found.values()}
        for model_type, names in getattr(modeling_auto, mapping).items():
            if kind == "base" and model_type in have:
                continue
            for name in (names,) if isinstance(names, str) else names:
                if name in known:
                    found.setdefault(name, (kind, model_type))
    return found


def config(cls):
    """A tiny configuration: what its class takes among ``SIZES``, in sub-configurations too; one layer of
    each type where layers differ."""
    names = _parameters(cls)
    whole = cls()
    given = {}
    for name in names:
        now = _value(whole, name)
        if name in cls.sub_configs:
            if now is not None:
                given[name] = config(type(now)).to_dict()
        elif name in SIZES and (type(now) is int or (now is None and name not in _WIDTH.split())):
            given[name] = SIZES[name]
    rope = _value(whole, "rope_parameters")
    if isinstance(rope, dict) and rope.get("mrope_section"):
        half = SIZES["head_dim"] // 2 * rope.get("partial_rotary_factor", 1.0)
        sections = rope["mrope_section"]
        given["rope_parameters"] = rope | {
            "mrope_section": [int(part * half / sum(sections)) for part in sections]
        }
    layers = _value(whole, "num_hidden_layers")
    lists = {n: v for n in names if isinstance(v := _value(whole, n), list) and v and len(v) == layers}
    if lists:
        rows = list(zip(*lists.values()))
        kept = list({repr(row): number for number, row in enumerate(rows)}.values())
        kept = sorted(kept) if len(kept) > 1 else kept * 2
        given |= {name: [value[number] for number in kept] for name, value in lists.items()}
        given["num_hidden_layers"] = len(kept)
    return cls(**given | OVERRIDES.get(cls.model_type or cls.__name__, {}))


def _parameters(cls) -> list[str]:
    if dataclasses.is_dataclass(cls):
        return [field.name for field in dataclasses.fields(cls)]
    return list(inspect.signature(cls.__init__).parameters)


def _value(config, name: str):
    """None too where a property refuses (values that differ by layer)."""
    try:
        return getattr(config, name, None)
    except RuntimeError:
        return None
