"""Lengths in the place of a mask: each sequence sees its own keys, and each layer its window of these."""

import pytest
import torch

from fusescope.core.errors import Unsupported
from fusescope.models import register_attention
from fusescope.models.hugging_face import attend, flash, model_masks
from fusescope.models.run.kv_cache import FixedCache

SIZES = dict(
    hidden_size=64, num_attention_heads=4, num_key_value_heads=2, intermediate_size=96, vocab_size=99
)
SIZES |= dict(num_hidden_layers=3, head_dim=32, max_position_embeddings=64, sliding_window=8, pad_token_id=0)
WINDOWED = dict(use_sliding_window=True, max_window_layers=1)
LOCAL = ["sliding_attention", "full_attention", "sliding_attention"]
MODELS = {
    "gemma2": dict(attn_logit_softcapping=2.0, query_pre_attn_scalar=4, final_logit_softcapping=None),
    "gpt_oss": dict(num_local_experts=4, num_experts_per_tok=2),
    "mistral": {},
    "gemma3_text": dict(query_pre_attn_scalar=4, layer_types=LOCAL),
    "qwen2": WINDOWED,
    "qwen3": WINDOWED,
    "phi3": {},
    "starcoder2": {},
    "cohere2": dict(layer_types=LOCAL),
    "llama": dict(sliding_window=None),
}


def model(kind: str, attention: str):
    from transformers import AutoConfig, AutoModelForCausalLM

    register_attention()
    config = AutoConfig.for_model(kind, **SIZES | MODELS[kind])
    torch.manual_seed(3)
    made = AutoModelForCausalLM.from_config(config, attn_implementation=attention).eval()
    for name, weight in made.named_parameters():  # sharper scores than those of the initial weights
        if name.endswith(("q_proj.weight", "k_proj.weight", "qkv_proj.weight")):
            weight.data *= 8
        if name.endswith("sinks"):
            weight.data.uniform_(0, 2)
    return made


@pytest.mark.parametrize("kind", MODELS)
def test_it_is_each_sequence_alone(kind):
    """The same logits as of Hugging Face's eager attention over a cache of that sequence's keys alone."""
    theirs, ours = model(kind, "eager"), model(kind, "fusescope")
    counts, layers = torch.tensor([5, 13]), SIZES["num_hidden_layers"]
    generator = torch.Generator().manual_seed(1)
    shape = 2, SIZES["num_key_value_heads"], 17, theirs.model.layers[0].self_attn.head_dim
    keys, values = ([torch.randn(shape, generator=generator) for _ in range(layers)] for _ in range(2))
    ids, places = torch.tensor([[7], [50]]), counts[:, None]
    whole = FixedCache([k.clone() for k in keys], [v.clone() for v in values], 16, counts)
    with torch.no_grad(), model_masks.masked((counts + 1).int()):
        found = ours(ids, past_key_values=whole, position_ids=places).logits
    for row, length in enumerate(counts.tolist()):
        parts = ([t[row : row + 1, :, : length + 1].clone() for t in side] for side in (keys, values))
        own = FixedCache(*parts, length)
        with torch.no_grad():
            exact = theirs(ids[row : row + 1], past_key_values=own, position_ids=places[row : row + 1]).logits
        torch.testing.assert_close(found[row], exact[0], rtol=1e-3, atol=2e-4)


def test_what_is_refused():
    q, k = torch.randn(2, 2, 1, 32).half(), torch.randn(2, 2, 20, 32).half()
    lengths = torch.tensor([3, 20], dtype=torch.int32)
    with model_masks.masked(lengths), pytest.raises(Unsupported, match="which its position_bias excludes"):
        attend.forward(torch.nn.Module(), q, k, k, None, position_bias=torch.zeros(1, 2, 1, 20))
    with pytest.raises(Unsupported, match="a sliding window over caches with lengths of their own"):
        flash.forward(torch.nn.Module(), q, k, k, lengths, sliding_window=8)
