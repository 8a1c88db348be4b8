"""Tiny decoders of transformers with windows, soft-caps or sinks, whose scores are sharp enough for these to
show."""

import torch

from fusescope.models import register_attention

SIZES = dict(
    hidden_size=64, num_attention_heads=4, num_key_value_heads=2, intermediate_size=96, vocab_size=99
)
SIZES |= dict(num_hidden_layers=3, head_dim=32, max_position_embeddings=64, sliding_window=8, pad_token_id=0)
CAPPED = dict(attn_logit_softcapping=2.0, query_pre_attn_scalar=4, final_logit_softcapping=None)
EXPERTS = dict(num_local_experts=4, num_experts_per_tok=2)
WINDOWED = dict(use_sliding_window=True, max_window_layers=1)
LOCAL = ["sliding_attention", "full_attention", "sliding_attention"]
MODELS = {
    "gemma2": CAPPED,
    "gpt_oss": EXPERTS,
    "mistral": {},
    "gemma3_text": dict(query_pre_attn_scalar=4, layer_types=LOCAL),
    "qwen2": WINDOWED,
    "qwen3": WINDOWED,
    "phi3": {},
    "starcoder2": {},
    "cohere2": dict(layer_types=LOCAL),
    "llama": dict(sliding_window=None),
}


def model(kind: str, attention: str, **sizes):
    from transformers import AutoConfig, AutoModelForCausalLM

    register_attention()
    config = AutoConfig.for_model(kind, **SIZES | MODELS[kind] | sizes)
    torch.manual_seed(3)
    made = AutoModelForCausalLM.from_config(config, attn_implementation=attention).eval()
    for name, weight in made.named_parameters():  # sharper scores than those of the initial weights
        if name.endswith(("q_proj.weight", "k_proj.weight", "qkv_proj.weight")):
            weight.data *= 8
        if name.endswith("sinks"):
            weight.data.uniform_(0, 2)
    return made
