"""Small config.json files of several architectures, shared by the tests of models by their config.json."""

from __future__ import annotations

import json
from pathlib import Path

from fusescope import models
from fusescope.models.by_config import config_file, transformers_model

TEXT = dict(hidden_size=64, num_attention_heads=2, intermediate_size=96, vocab_size=99)
TWO = TEXT | {"num_hidden_layers": 2, "max_position_embeddings": 64}
GROUPED = TWO | {"num_key_value_heads": 1}
FILES = {
    "qwen2": TEXT | {"num_hidden_layers": 3, "num_key_value_heads": 1, "max_position_embeddings": 64},
    "gemma3_text": TEXT
    | {"num_hidden_layers": 2, "num_key_value_heads": 1, "head_dim": 32, "sliding_window": 8},
    "mixtral": TEXT | {"num_hidden_layers": 2, "num_key_value_heads": 1, "num_local_experts": 4},
    "mamba": {"hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 99},
    "roberta": TWO,
    "deberta-v2": TEXT | {"num_hidden_layers": 2},
    "deit": TEXT | {"num_hidden_layers": 2, "image_size": 32, "patch_size": 8},
    "bart": {
        "d_model": 64,
        "vocab_size": 99,
        "max_position_embeddings": 64,
        **{f"{s}_{n}": v for s in ("encoder", "decoder") for n, v in (("layers", 2), ("ffn_dim", 96))},
        **{f"{s}_attention_heads": 2 for s in ("encoder", "decoder")},
    },
    "llama": GROUPED,
    "mistral": GROUPED | {"sliding_window": None},
    "qwen3": GROUPED | {"head_dim": 40, "tie_word_embeddings": True},
    "gpt2": {"n_embd": 64, "n_head": 2, "n_layer": 2, "vocab_size": 99, "n_positions": 64},
    "gemma2": GROUPED | {"head_dim": 32, "sliding_window": 8},
    "gpt_oss": GROUPED
    | {"head_dim": 32, "sliding_window": 8, "num_local_experts": 4, "num_experts_per_tok": 2},
    "opt": {"ffn_dim": 96, "word_embed_proj_dim": 64, **TWO},
    "phi3": TWO | {"pad_token_id": 0},
    "falcon": TWO,
    "bloom": {"hidden_size": 64, "n_head": 2, "n_layer": 2, "vocab_size": 99},
    "deepseek_v3": TWO
    | {"num_key_value_heads": 2, "n_routed_experts": 4, "n_group": 1, "topk_group": 1}
    | {"num_experts_per_tok": 2, "first_k_dense_replace": 1, "moe_intermediate_size": 32}
    | {"kv_lora_rank": 16, "q_lora_rank": 16, "qk_rope_head_dim": 16, "qk_nope_head_dim": 16}
    | {"v_head_dim": 24},
    "qwen3_next": GROUPED | {"head_dim": 32},
    "bert": TWO,
}


def asked(file: str) -> dict:
    """What config_file.asked gives, from this process, which has transformers already."""
    try:
        return transformers_model.describe(file)
    except transformers_model.Refused as refused:
        return {"error": str(refused)}


def write(folder: Path, kind: str, **more) -> str:
    """The name of the model: its file's path."""
    file = folder / kind / "config.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({"model_type": kind, **FILES.get(kind, {}), **more}))
    return config_file.resolved(str(file.parent))


def case(name: str, **more) -> dict:
    """Complete: two sequences of 17 tokens."""
    tokens = {} if "deit" in name else {"seq": 17}
    return models.validate(name, {"batch": 2} | tokens | more)
