"""fusescope.generate: the tokens of Hugging Face's own generate, sampling in distribution, refusals."""

from __future__ import annotations

from functools import lru_cache

import pytest

import fusescope
from fusescope.core.errors import Unsupported

WORDS = 211
SIZES = {
    "gpt2": dict(n_embd=64, n_layer=2, n_head=2, n_positions=320),
    "llama": {},
    "mistral": {"sliding_window": None},
    "qwen2": {"hidden_size": 128},
    "qwen3": {"tie_word_embeddings": True},
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
SCALED = {
    "llama3": LLAMA3,
    "yarn": YARN,
    "linear": {"rope_type": "linear", "factor": 2.0},
    "dynamic": {"rope_type": "dynamic", "factor": 2.0},  # within its positions
}
WINDOWS = {
    "mistral": {"sliding_window": 8},
    "qwen2": dict(use_sliding_window=True, sliding_window=6, max_window_layers=1, hidden_size=128),
}
LLAMA = dict(
    hidden_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=32,
    intermediate_size=96,
    max_position_embeddings=512,
)


@lru_cache(maxsize=8)
def model(kind: str, **more):
    """A tiny random model whose next tokens are far apart: weights of deviation 0.15, biases, norms too."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    own = {} if kind == "gpt2" else LLAMA
    tokens = dict(bos_token_id=1, eos_token_id=None, pad_token_id=0)
    sizes = dict(vocab_size=WORDS, initializer_range=0.15) | tokens | own | SIZES.get(kind, {}) | more
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(3)
        config = AutoConfig.for_model(kind, **sizes)
        found = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
        for p in found.parameters():
            if p.dim() == 1:
                p.add_(torch.randn_like(p), alpha=0.1)
    return found


def prompts(batch: int = 4, tokens: int = 11):
    import torch

    return torch.randint(1, WORDS, (batch, tokens), generator=torch.Generator().manual_seed(5))


def mask(*paddings: str | None):
    """A row of the given kind for each sequence."""
    import torch

    found = torch.ones(len(paddings) or 4, 11, dtype=torch.long)
    for row, padding in zip(found, paddings):
        hidden = {None: [], "left": [0, 1, 2, 3], "right": [7, 8, 9, 10], "inside": [0, 3, 4]}[padding]
        row[hidden] = 0
    return found


ALL = (None, "left", "right", "inside")


def theirs(m, ids, there, new, **more):
    return m.generate(ids, attention_mask=there, max_new_tokens=new, do_sample=False, **more)


def same(m, there, new: int) -> bool:
    import torch

    found = fusescope.generate(m, prompts(), there, max_new_tokens=new)
    assert found.dtype == torch.int64 and found.shape == (4, 11 + new) and len(found.unique()) > 20
    return torch.equal(found, theirs(m, prompts(), there, new))


@pytest.mark.parametrize("kind", SIZES)
def test_greedy_tokens_are_those_of_hugging_face_whatever_the_padding(kind):
    assert same(model(kind), mask(*ALL), 12)


@pytest.mark.sample(1)
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_greedy_tokens_over_256_with_a_cache_that_grows(kind, monkeypatch):
    from fusescope.models.run.decoder import cache

    monkeypatch.setattr(cache, "BUCKET", 16)  # grows four times
    assert same(model(kind), mask(None, "left", "left", None), 256)


@pytest.mark.slow
@pytest.mark.parametrize("kind", WINDOWS)
def test_a_window_shorter_than_the_sequences_is_a_ring_of_the_last_tokens(kind, monkeypatch):
    from fusescope.models.run.decoder import cache

    monkeypatch.setattr(cache, "BUCKET", 4)  # grows up to the window
    made = []
    init = cache.Cache.__init__
    monkeypatch.setattr(cache.Cache, "__init__", lambda self, *a: (init(self, *a), made.append(self))[0])
    m = model(kind, **WINDOWS[kind])
    assert same(m, mask(None, "left", "left", None), 24)
    assert [k.shape[2] for k in made[0].keys] == ([8, 8] if kind == "mistral" else [34, 6])
    assert same(m, mask(*ALL), 12), "padding takes up room in the window"
    found = fusescope.generate(m, prompts()[:, :3], max_new_tokens=9)  # a ring that grows, then wraps
    assert (found == theirs(m, prompts()[:, :3], mask()[:, :3], 9)).all()


@pytest.mark.parametrize("kind", SCALED)
def test_scaled_rotary_positions(kind):
    assert same(model("llama", rope_parameters=Scaled(SCALED[kind])), mask(None, "left", None, "left"), 12)


def test_a_checkpoint_s_scaled_positions_are_kept_and_what_is_unknown_of_them_is_refused():
    from fusescope.models.describe import settings
    from fusescope.models.families import llama

    own = settings.keywords(llama, llama.NAMES["llama3.1-8b"]) | {"model_type": "llama"}
    assert own["rope_parameters"]["factor"] == 8.0
    assert settings.sizes(llama, own).more == llama.NAMES["llama3.1-8b"].more
    old = {key: value for key, value in own.items() if key != "rope_parameters"} | {"rope_theta": 5e5}
    scaled = {"type": "linear", "factor": 2.0}
    assert settings.sizes(llama, old | {"rope_scaling": scaled}).more["rope"]["factor"] == 2.0
    for wrong, says in (
        ({"type": "linear"}, "need factor"),
        ({"type": "linear", "factor": 0}, "factor of rope_parameters"),
        ({"type": "linear", "factor": 2.0, "partial_rotary_factor": 0.5}, "not partial_rotary_factor"),
        ({"type": "longrope"}, "of the kind default, linear, llama3, yarn, not 'longrope'"),
        ("linear", "is an object"),
    ):
        with pytest.raises(ValueError, match=says):
            settings.sizes(llama, old | {"rope_scaling": wrong})


def test_a_checkpoint_with_a_window_is_measured_within_it(tmp_path):
    import json

    from fusescope import models
    from fusescope.models.describe import settings
    from fusescope.models.families import mistral

    own = settings.keywords(mistral, mistral.NAMES["mistral-7b"]) | {"model_type": "mistral"}
    (tmp_path / "config.json").write_text(json.dumps(own | {"sliding_window": 64}))
    asked = {"phase": "decode", "seq": 63}
    config = models.config("mistral-7b", asked, str(tmp_path))
    assert config.more["window"] == 64 and mistral.further(config)["sliding_window"] is None
    with pytest.raises(ValueError, match="a sliding window of 64 tokens; 65 were asked for"):
        models.config("mistral-7b", asked | {"seq": 64}, str(tmp_path))
    with pytest.raises(ValueError, match=r"sliding_window of config\.json"):
        settings.sizes(mistral, own | {"sliding_window": 0})
    assert settings.sizes(mistral, {k: v for k, v in own.items() if k != "sliding_window"}).more["window"]


class Scaled(dict):
    """Of rotary positions, hashable for the cache of models."""

    def __hash__(self):
        return hash(tuple(self.items()))


@pytest.mark.parametrize("kind", ["gpt2", "mistral"])
def test_a_cache_goes_on_where_a_conversation_does(kind, monkeypatch):
    """The same tokens as from the start, and only the new ones are computed; other tokens, weights or a
    shorter prompt are seen."""
    import torch

    from fusescope.models.run.decoder.layers import Layers

    computed, embed = [], Layers.embed
    monkeypatch.setattr(
        Layers, "embed", lambda self, ids, *a: (computed.append(ids.shape[1]), embed(self, ids, *a))[1]
    )
    m, ids, there = model(kind, **WINDOWS.get(kind, {})), prompts(), mask(None, "left", None, "left")
    kept = fusescope.KVCache()
    first = fusescope.generate(m, ids, there, max_new_tokens=6, cache=kept)
    turn = torch.cat((first, prompts(4, 3)), 1)
    there = torch.nn.functional.pad(there, (0, 9), value=1)
    expected = theirs(m, turn, there, 5)
    computed.clear()
    assert torch.equal(fusescope.generate(m, turn, there, max_new_tokens=5, cache=kept), expected)
    assert computed == [4, 1, 1, 1, 1], "the last token of the first call and three more, then one by one"
    for changed in (0, 14, 18):  # another token: the first, of the answer, behind it
        other = turn.clone()
        other[2, changed] = other[2, changed] % (WORDS - 1) + 1
        found = fusescope.generate(m, other, there, max_new_tokens=5, cache=kept)
        assert torch.equal(found, fusescope.generate(m, other, there, max_new_tokens=5))
    shorter = fusescope.generate(m, turn[:2], there[:2], max_new_tokens=5, cache=kept)
    assert torch.equal(shorter, expected[:2])
    with pytest.raises(TypeError, match=r"cache is a fusescope\.KVCache or None, not dict"):
        fusescope.generate(m, turn, max_new_tokens=5, cache={})


def test_stop_tokens_end_sequences_and_the_rest_is_padding():
    import torch

    m, ids = model("llama"), prompts()
    free = fusescope.generate(m, ids, max_new_tokens=16)
    stops = [int(free[0, 14]), int(free[1, 20])]
    for given in (stops[0], stops):
        found = fusescope.generate(m, ids, max_new_tokens=16, eos_token_id=given)
        assert torch.equal(found, theirs(m, ids, mask(), 16, eos_token_id=given))
        assert int(found[0, -1]) == 0 or found.shape[1] < 27
    every = [int(t) for t in free[:, 12]]
    found = fusescope.generate(m, ids, max_new_tokens=16, eos_token_id=every)
    assert found.shape[1] < 27 and torch.equal(found, theirs(m, ids, mask(), 16, eos_token_id=every))


def test_changed_weights_are_seen():
    import torch

    m, ids = model("llama", hidden_size=96), prompts()
    fusescope.generate(m, ids, max_new_tokens=4)
    with torch.no_grad():
        m.lm_head.weight.copy_(m.lm_head.weight.flip(0))
    found = fusescope.generate(m, ids, max_new_tokens=4)
    assert torch.equal(found, theirs(m, ids, mask(), 4))


@pytest.mark.slow
def test_samples_follow_the_probabilities_of_hugging_face_and_the_seed():
    import torch
    from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    m, ids = model("gpt2"), prompts(1)
    with torch.no_grad():
        scores = m(ids).logits[:, -1].float()
    for warper in (TemperatureLogitsWarper(3.0), TopKLogitsWarper(12), TopPLogitsWarper(0.9)):
        scores = warper(ids, scores)
    expected = scores.softmax(-1)[0]
    many = ids.expand(4000, -1)
    how = dict(max_new_tokens=1, do_sample=True, temperature=3.0, top_k=12, top_p=0.9)
    drawn = fusescope.generate(m, many, seed=7, **how)[:, -1]
    counts = torch.bincount(drawn, minlength=WORDS).double()
    assert not counts[expected == 0].any()
    live = expected > 0
    chi = ((counts - 4000 * expected)[live] ** 2 / (4000 * expected[live])).sum()
    assert live.sum() > 3 and chi < 3 * int(live.sum()) + 20, "chi-squared far beyond its degrees of freedom"
    assert torch.equal(drawn, fusescope.generate(m, many, seed=7, **how)[:, -1])
    assert not torch.equal(drawn, fusescope.generate(m, many, seed=8, **how)[:, -1])


@pytest.mark.parametrize(
    "given, says",
    [
        ({"max_new_tokens": 0}, "max_new_tokens"),
        ({"temperature": 0.5}, "temperature is of sampling"),
        ({"do_sample": True, "temperature": 0.0}, "temperature"),
        ({"do_sample": True, "top_k": 0}, "top_k"),
        ({"do_sample": True, "top_p": 1.5}, "top_p"),
        ({"max_new_tokens": 320}, "has 320 positions"),
    ],
)
def test_bad_settings_are_refused_in_a_sentence(given, says):
    with pytest.raises(ValueError, match=says):
        fusescope.generate(model("gpt2"), prompts(), **{"max_new_tokens": 2} | given)


def test_bad_tensors_and_models_are_refused_in_a_sentence():
    import torch
    from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

    m, ids = model("llama"), prompts()
    for wrong, there, error, says in (
        (ids.int(), None, TypeError, "int64"),
        (ids[0], None, ValueError, "its shape is"),
        (ids + WORDS, None, ValueError, "token ids lie from 0 to 210"),
        (ids, torch.ones(3, 10), ValueError, "shape of input_ids"),
        (ids, mask() * 2, ValueError, "1 where a token is there"),
        (ids, mask() * 0, ValueError, "without any token"),
    ):
        with pytest.raises(error, match=says):
            fusescope.generate(m, wrong, there, max_new_tokens=2)
    for other in (AutoModel.from_config(m.config), torch.nn.Linear(2, 2)):
        with pytest.raises(Unsupported, match=r"runs GPT2LMHeadModel, .* not "):
            fusescope.generate(other, ids, max_new_tokens=2)
    tiny = dict(LLAMA, vocab_size=WORDS)
    for kind, more, says in (
        ("llama", {"attention_bias": True}, "attention_bias"),
        ("llama", {"hidden_act": "gelu"}, "hidden_act"),
        ("llama", {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}, "'dynamic'"),
        (
            "gpt2",
            {"n_embd": 64, "n_layer": 1, "n_head": 2, "scale_attn_weights": False},
            "scale_attn_weights",
        ),
    ):
        sizes = more | {"vocab_size": WORDS} if kind == "gpt2" else tiny | more
        odd = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **sizes)).eval()
        with pytest.raises(Unsupported, match=says):
            fusescope.generate(odd, ids, max_new_tokens=502 if "dynamic" in says else 2)
    held = model("llama", hidden_size=32)
    held.generation_config.repetition_penalty = 1.5
    with pytest.raises(Unsupported, match="repetition_penalty"):
        fusescope.generate(held, ids, max_new_tokens=2)
    with pytest.raises(Unsupported, match="evaluation mode"):
        fusescope.generate(model("llama", hidden_size=160).train(), ids, max_new_tokens=2)
