"""Decoding with soft-caps, sinks and sliding windows: tokens and logits of transformers' eager attention, by
attention_decode in every step, over each kind of cache."""

import pytest
import torch

from fusescope.core.errors import Unsupported
from fusescope.models.hugging_face import decoding, model_masks
from fusescope.models.run.kv_cache import FixedCache
from fusescope.ops.attention import decode
from tests.models.windowed_models import MODELS, SIZES, model

SLIDING = ("mistral", "phi3", "starcoder2")  # in every layer
CACHES = ("dynamic", "static", "keeps all")


def kept(cache: str) -> dict:
    """What gives generate() a cache; one that "keeps all" has keys that sliding layers do not see."""
    from transformers import DynamicCache

    if cache == "keeps all":
        return {"past_key_values": DynamicCache()}
    return {"cache_implementation": "static" if cache == "static" else None}


@pytest.fixture
def decoded(monkeypatch):
    """The options of each call of attention_decode."""
    found, own = [], decode.attention_decode

    def seen(*args, **given):
        found.append(given)
        return own(*args, **given)

    import fusescope.ops.attention as room

    monkeypatch.setattr(room, "attention_decode", seen)
    return found


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("prompt", (3, 7, 12))
@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.sample(12)
def test_tokens_and_logits_are_those_of_eager(kind, prompt, cache, decoded):
    """Prompts within the window of 8, up to it and beyond; of two sequences the first is padded left."""
    new = 8
    theirs, ours = model(kind, "eager"), model(kind, "fusescope")
    ids = torch.randint(3, 99, (2, prompt), generator=torch.Generator().manual_seed(prompt))
    how = dict(max_new_tokens=new, min_new_tokens=new, do_sample=False, eos_token_id=None, pad_token_id=0)
    how |= dict(return_dict_in_generate=True, output_logits=True, disable_compile=True)
    for padded in (0, 2):
        there = torch.ones_like(ids)
        there[0, :padded] = 0
        decoded.clear()
        a, b = (m.generate(ids, attention_mask=there, **kept(cache), **how) for m in (theirs, ours))
        torch.testing.assert_close(torch.stack(a.logits), torch.stack(b.logits), rtol=1e-3, atol=2e-4)
        assert torch.equal(a.sequences, b.sequences)
        assert len(decoded) == SIZES["num_hidden_layers"] * (new - 1)
        biased = any(given.get("bias") is not None for given in decoded)
        assert biased is (padded > 0 and (cache != "dynamic" or prompt < 12 or kind not in SLIDING))
        if cache == "keeps all" and kind != "llama":
            assert any(given.get("window") == 8 for given in decoded)


@pytest.mark.parametrize("kind", MODELS)
def test_lengths_in_the_place_of_a_mask(kind, decoded):
    """Each sequence has its own tokens, the new one behind them, and layers see their windows of these."""
    theirs, ours = model(kind, "eager"), model(kind, "fusescope")
    counts, layers = torch.tensor([5, 13]), SIZES["num_hidden_layers"]
    generator = torch.Generator().manual_seed(1)
    shape = 2, SIZES["num_key_value_heads"], 17, theirs.model.layers[0].self_attn.head_dim
    keys, values = ([torch.randn(shape, generator=generator) for _ in range(layers)] for _ in range(2))
    ids = torch.tensor([[7], [50]])
    for length, row in zip(counts.tolist(), range(2)):
        own = FixedCache([k[row : row + 1, :, : length + 1].clone() for k in keys],
                         [v[row : row + 1, :, : length + 1].clone() for v in values], length)  # fmt: skip
        whole = FixedCache([k.clone() for k in keys], [v.clone() for v in values], 16, counts)
        places = counts[:, None]
        with torch.no_grad():
            a = theirs(ids[row : row + 1], past_key_values=own, position_ids=places[row : row + 1]).logits
            with model_masks.masked((counts + 1).int()):
                b = ours(ids, past_key_values=whole, position_ids=places).logits
        torch.testing.assert_close(a[0], b[row], rtol=1e-3, atol=2e-4)
    windows = {given["window"] for given in decoded}
    assert windows == ({None} if kind == "llama" else {8} if kind in SLIDING else {None, 8})


def test_lengths_are_refused_where_a_layer_has_dropped_keys():
    from transformers import DynamicCache

    ours = model("gemma2", "fusescope")
    cache = DynamicCache(config=ours.config)
    with torch.no_grad():
        ours(torch.randint(3, 99, (1, 12)), past_key_values=cache)
        with (
            model_masks.masked(torch.tensor([13], dtype=torch.int32)),
            pytest.raises(Unsupported, match="sliding window of 8 has dropped 5"),
        ):
            ours(torch.tensor([[5]]), past_key_values=cache)


def test_lengths_are_refused_for_other_masks():
    from transformers.masking_utils import chunked_causal_mask_function

    chunked = chunked_causal_mask_function(4, torch.zeros(1, dtype=torch.int64))
    given = dict(q_length=1, kv_length=9, mask_function=chunked, local_size=4, batch_size=1)
    with (
        model_masks.masked(torch.ones(1, dtype=torch.int32)),
        pytest.raises(Unsupported, match="asks for another mask"),
    ):
        model_masks.mask(**given)


@pytest.mark.parametrize("function", ("chunked", "own and window", "window and own"))
def test_another_mask_carries_nothing(function):
    """Of these a window is a part at most."""
    from transformers import masking_utils as theirs

    window = theirs.sliding_window_causal_mask_function(4)
    made = {
        "chunked": theirs.chunked_causal_mask_function(4, torch.zeros(1, dtype=torch.int64)),
        "own and window": theirs.and_masks(lambda b, h, q, k: k != 7, window),
        "window and own": theirs.and_masks(window, lambda b, h, q, k: k != 7),
    }[function]
    given = dict(q_length=1, kv_length=9, q_offset=8, batch_size=1, local_size=4, allow_is_causal_skip=False)
    assert decoding.of(model_masks.mask(mask_function=made, **given)) is None
    assert decoding.of(model_masks.mask(mask_function=window, **given)).window == 4


def test_a_mask_that_a_model_changes_is_attended_by_as_it_is():
    given = dict(q_length=1, kv_length=9, q_offset=8, batch_size=1, local_size=4, allow_is_causal_skip=False)
    from transformers import masking_utils as theirs

    keep = model_masks.mask(mask_function=theirs.sliding_window_causal_mask_function(4), **given)
    assert decoding.of(keep[..., :9]) is None and decoding.of(keep & True) is None


@pytest.mark.slow
@pytest.mark.parametrize("kind", ("gemma2", "gpt_oss", "mistral"))
@pytest.mark.parametrize("made", (True, False))
def test_compiled_steps_over_a_static_cache(kind, made):
    """made: the masks are made before the compiled call, as generate() does; else in it."""
    from transformers import StaticCache

    ours, ids = model(kind, "fusescope"), torch.randint(3, 99, (2, 12))

    def steps(call):
        cache, found = StaticCache(config=ours.config, max_cache_len=24), []
        there = torch.ones(2, 15, dtype=torch.int64)
        there[0, :2] = 0
        with torch.no_grad():
            ours(ids, attention_mask=there[:, :12], past_key_values=cache)
            for n in range(12, 15):
                how = dict(attention_mask=there[:, : n + 1], past_key_values=cache)
                if made:
                    prepared = ours.prepare_inputs_for_generation(ids[:, :1], next_sequence_length=1, **how)
                    how["attention_mask"] = prepared["attention_mask"]
                else:
                    how["attention_mask"] = torch.nn.functional.pad(how["attention_mask"], (0, 23 - n))
                found.append(call(ids[:, :1], **how).logits)
        return torch.stack(found)

    torch._dynamo.reset()
    compiled = torch.compile(ours, fullgraph=True, dynamic=False, backend="eager")
    torch.testing.assert_close(steps(compiled), steps(ours), rtol=1e-4, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("kind", ("gemma2", "gpt_oss", "mistral", "qwen3"))
@pytest.mark.parametrize("head_dim", (64, 256))
def test_on_a_gpu_logits_are_those_of_eager(kind, cache, head_dim, decoded):
    sizes = dict(head_dim=head_dim)
    if kind == "gpt_oss":  # all of the experts: rounding to bfloat16 chooses other ones, in eager too
        sizes |= dict(num_experts_per_tok=4)
    theirs, ours = (model(kind, how, **sizes).to("cuda", torch.bfloat16) for how in ("eager", "fusescope"))
    ids, new = torch.randint(3, 99, (2, 12), device="cuda"), 8
    there = torch.ones_like(ids)
    there[0, :2] = 0
    how = dict(max_new_tokens=new, do_sample=False, eos_token_id=None, pad_token_id=0, disable_compile=True)
    how |= dict(return_dict_in_generate=True, output_logits=True)
    found = ours.generate(ids, attention_mask=there, **kept(cache), **how)
    calls = len(decoded)
    logits = torch.stack(found.logits, 1).float()
    for row, padding in enumerate((2, 0)):  # in float32, of the tokens that ours chose
        with torch.no_grad():
            exact = theirs.float()(found.sequences[row : row + 1, padding:]).logits[0, -new - 1 : -1]
        assert float((logits[row] - exact).norm() / exact.norm()) < 0.05
    assert calls == SIZES["num_hidden_layers"] * (new - 1)
