"""fusescope.generate goes by the module as it is: its head, its hooks, its weights however they were changed,
what its generation_config says; what our decoder does not do is refused."""

from __future__ import annotations

import copy

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

import fusescope
from fusescope.core.errors import Unsupported

SIZES = {
    "gpt2": dict(n_embd=64, n_layer=2, n_head=2, n_positions=64),
    "llama": dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=96),
    "mistral": dict(
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        intermediate_size=96,
        sliding_window=4,
    ),
}
IDS = torch.randint(1, 99, (3, 9), generator=torch.Generator().manual_seed(5))


def model(kind: str, **more):
    tokens = dict(vocab_size=99, initializer_range=0.3, bos_token_id=1, eos_token_id=None, pad_token_id=0)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        config = AutoConfig.for_model(kind, **tokens | SIZES[kind] | more)
        return AutoModelForCausalLM.from_config(config).eval()


def ours(m, new: int = 6, **more):
    return fusescope.generate(m, IDS, max_new_tokens=new, **more)


def theirs(m, new: int = 6):
    return m.generate(IDS, attention_mask=torch.ones_like(IDS), max_new_tokens=new, do_sample=False)


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_the_head_is_that_of_the_module_not_what_the_configuration_says(kind):
    assert torch.equal(ours(m := model(kind, tie_word_embeddings=False)), theirs(m))
    m = model(kind, tie_word_embeddings=True)
    tied = ours(m)
    assert torch.equal(tied, theirs(m))
    m.lm_head.weight = torch.nn.Parameter(m.lm_head.weight.detach().flip(0).clone())
    assert torch.equal(ours(m), theirs(m)) and not torch.equal(ours(m), tied)


@pytest.mark.slow
def test_weights_changed_by_any_way_are_seen():
    def by_data(weight):
        weight.data.mul_(-2)

    def by_numpy(weight):
        weight.detach().numpy()[:] *= -2

    llama = ("model.layers.0.self_attn.q_proj", "model.layers.1.mlp.up_proj", "model.norm", "lm_head")
    gpt2 = ("transformer.h.1.mlp.c_fc", "transformer.wte")  # of which copies are made: turned, and padded
    for family, name in [*(("llama", n) for n in llama), *(("gpt2", n) for n in gpt2)]:
        for change in (by_data, by_numpy):
            m = model(family)
            before = ours(m)
            change(m.get_submodule(name).weight)
            assert torch.equal(ours(m), theirs(m)) and not torch.equal(ours(m), before), name


def test_a_model_made_under_inference_mode_runs():
    with torch.inference_mode():
        m = model("llama")
    assert torch.equal(ours(m), theirs(m))


def test_hooks_and_other_parameters_are_refused():
    m = model("llama")
    handle = m.model.layers[1].register_forward_hook(lambda module, given, out: out * 2)
    with pytest.raises(Unsupported, match=r"calls no hooks, and model\.layers\.1 has one"):
        ours(m)
    handle.remove()
    with torch.no_grad():
        m(IDS, output_hidden_states=True, output_attentions=True)  # hooks of transformers' own
    fusescope.register_attention()
    assert torch.equal(ours(m), theirs(m))
    m.set_attn_implementation("fusescope")
    assert torch.equal(ours(m), theirs(m))
    adapted = torch.nn.Module()
    adapted.base_layer = m.model.layers[0].self_attn.q_proj
    m.model.layers[0].self_attn.q_proj = adapted
    with pytest.raises(Unsupported, match=r"no parameter model\.layers\.0\.self_attn\.q_proj\.weight"):
        ours(m)


@pytest.mark.parametrize(
    "more",
    [
        {"sequence_bias": [[[5], 9.0]]},
        {"encoder_repetition_penalty": 1.9},
        {"encoder_no_repeat_ngram_size": 1},
        {"guidance_scale": 2.0},
        {"exponential_decay_length_penalty": (1, 2.0)},
        {"stop_strings": ["a"]},
        {"max_time": 1.0},
        {"watermarking_config": {"bias": 9.0}},
        {"token_healing": True},
        {"penalty_alpha": 0.5},
        {"dola_layers": "high"},
    ],
    ids=lambda more: next(iter(more)),
)
def test_settings_of_the_model_that_change_its_tokens_are_refused(more):
    m = model("llama")
    m.generation_config = GenerationConfig(pad_token_id=0, **more)
    with pytest.raises(Unsupported, match=f"has no {next(iter(more))}, which the model's generation_config"):
        ours(m)


def test_padding_that_fills_a_window_is_refused():
    m, there = model("mistral"), torch.ones_like(IDS)
    there[1, -3:] = 0
    found = fusescope.generate(m, IDS, there, max_new_tokens=6)
    expected = copy.deepcopy(m).generate(IDS, attention_mask=there, max_new_tokens=6, do_sample=False)
    assert torch.equal(found, expected)
    there[1, -4:] = 0
    with pytest.raises(Unsupported, match="4 of padding at the end fill a sliding window of 4"):
        fusescope.generate(m, IDS, there, max_new_tokens=6)


def test_stop_tokens_are_numbers():
    m = model("llama")
    for wrong in ("12", 2.0, [2.5], [True]):
        with pytest.raises(TypeError, match="eos_token_id is a token's number or a list of these"):
            ours(m, eos_token_id=wrong)
    stops = [int(ours(m)[0, -2]), 7]
    for given in (torch.tensor(stops), tuple(stops), set(stops)):
        assert torch.equal(ours(m, eos_token_id=given), ours(m, eos_token_id=stops))
