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


def prompts(batch: int = 3, tokens: int = 11):
    import torch

    return torch.randint(1, WORDS, (batch, tokens), generator=torch.Generator().manual_seed(5))


def mask(padding: str | None):
    import torch

    found = torch.ones(3, 11, dtype=torch.long)
    if padding == "left":
        found[0, :4] = found[2, :9] = 0
    elif padding == "right":
        found[0, 7:] = found[2, 2:] = 0
    elif padding == "inside":
        found[1, 3:5] = found[2, 0] = 0
    return found


def theirs(m, ids, there, new, **more):
    return m.generate(ids, attention_mask=there, max_new_tokens=new, do_sample=False, **more)


@pytest.mark.parametrize("kind", SIZES)
def test_greedy_tokens_are_those_of_hugging_face(kind):
    import torch

    m, ids = model(kind), prompts()
    found = fusescope.generate(m, ids, max_new_tokens=48)
    assert found.dtype == torch.int64 and found.shape == (3, 59)
    assert torch.equal(found, theirs(m, ids, mask(None), 48))
    for padding in ("left", "right", "inside"):
        there = mask(padding)
        found = fusescope.generate(m, ids, there, max_new_tokens=12)
        assert torch.equal(found, theirs(m, ids, there, 12)), padding


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_greedy_tokens_over_256_with_a_cache_that_grows(kind, monkeypatch):
    import torch

    from fusescope.models.run.decoder import cache

    monkeypatch.setattr(cache, "BUCKET", 16)  # grows four times
    m, ids, there = model(kind), prompts(), mask("left")
    found = fusescope.generate(m, ids, there, max_new_tokens=256)
    assert torch.equal(found, theirs(m, ids, there, 256)) and len(found.unique()) > 20


def test_stop_tokens_end_sequences_and_the_rest_is_padding():
    import torch

    m, ids = model("llama"), prompts()
    free = fusescope.generate(m, ids, max_new_tokens=16)
    stops = [int(free[0, 14]), int(free[1, 20])]
    for given in (stops[0], stops):
        found = fusescope.generate(m, ids, max_new_tokens=16, eos_token_id=given)
        assert torch.equal(found, theirs(m, ids, mask(None), 16, eos_token_id=given))
        assert int(found[0, -1]) == 0 or found.shape[1] < 27
    every = [int(t) for t in free[:, 12]]
    found = fusescope.generate(m, ids, max_new_tokens=16, eos_token_id=every)
    assert found.shape[1] < 27 and torch.equal(found, theirs(m, ids, mask(None), 16, eos_token_id=every))


def test_changed_weights_are_seen():
    import torch

    m, ids = model("llama", hidden_size=96), prompts()
    fusescope.generate(m, ids, max_new_tokens=4)
    with torch.no_grad():
        m.lm_head.weight.copy_(m.lm_head.weight.flip(0))
    found = fusescope.generate(m, ids, max_new_tokens=4)
    assert torch.equal(found, theirs(m, ids, mask(None), 4))


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
        (ids, mask(None) * 2, ValueError, "1 where a token is there"),
        (ids, mask(None) * 0, ValueError, "without any token"),
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
        ("mistral", {"sliding_window": 8}, "sliding_window"),
        (
            "gpt2",
            {"n_embd": 64, "n_layer": 1, "n_head": 2, "scale_attn_weights": False},
            "scale_attn_weights",
        ),
    ):
        sizes = more | {"vocab_size": WORDS} if kind == "gpt2" else tiny | more
        odd = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **sizes)).eval()
        with pytest.raises(Unsupported, match=says):
            fusescope.generate(odd, ids, max_new_tokens=2)
    held = model("llama", hidden_size=32)
    held.generation_config.repetition_penalty = 1.5
    with pytest.raises(Unsupported, match="repetition_penalty"):
        fusescope.generate(held, ids, max_new_tokens=2)
    with pytest.raises(Unsupported, match="evaluation mode"):
        fusescope.generate(model("llama", hidden_size=160).train(), ids, max_new_tokens=2)


def test_a_window_that_holds_every_token_is_no_window():
    import torch

    m, ids = model("mistral", sliding_window=64), prompts()
    found = fusescope.generate(m, ids, max_new_tokens=8)
    assert torch.equal(found, theirs(m, ids, mask(None), 8))
