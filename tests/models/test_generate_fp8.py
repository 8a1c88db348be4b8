"""fusescope.generate over an fp8 cache: the tokens of a cache in the model's dtype whose values are rounded
alike."""

import pytest

import fusescope
from tests.models.test_generate import ALL, WINDOWS, mask, model, prompts


def _rounded_alike(patch):
    """Makes Decoder keep what an fp8 cache would hold in a cache of the model's dtype, computed apart."""
    from fusescope.models.run.decoder import cache, decoder
    from fusescope.ops import fp8
    from fusescope.ops.attention import step

    made = []
    write = decoder.rope_cache

    class Rounded(cache.Cache):
        def __init__(self, windows, shape, dtype, device, in_fp8):
            super().__init__(windows, shape, dtype, device)
            self.own = [None] * len(windows)
            made.append(self)

        def fill(self, layer, keys, values, starts, totals):
            pair = [t.transpose(1, 2) for t in (keys, values)]
            there = torch.arange(keys.shape[1]) < totals[:, None]
            sizes = [(t * there[:, None, :, None]).abs().amax((0, 2, 3)) for t in pair]
            self.own[layer] = [2.0 ** (torch.floor(torch.log2(size / 224)) + 1) for size in sizes]
            super().fill(layer, *self.rounded(layer, pair), starts, totals)

        def rounded(self, layer, pair):
            made = zip(pair, self.own[layer])
            return [fp8.from_fp8(fp8.to_fp8(t, s), s, t.dtype).transpose(1, 2) for t, s in made]

    import torch

    def then_rounded(q, k, v, angles, positions, *caches, **how):
        found = write(q, k, v, angles, positions, *caches, **how)
        layer = next(i for i, k in enumerate(made[-1].keys) if k is caches[0])
        for t, rounded in zip(caches, made[-1].rounded(layer, caches)):
            t.copy_(rounded.transpose(1, 2))
        return found

    patch.setattr(decoder, "Cache", Rounded)
    for module in (decoder, step):
        patch.setattr(module, "rope_cache", then_rounded)


@pytest.mark.parametrize("kind", ["gpt2", "llama", "mistral", "qwen2"])
def test_tokens_are_those_of_values_rounded_alike(kind, monkeypatch):
    import torch

    m, there = model(kind, **WINDOWS.get(kind, {})), mask(*ALL)
    given = dict(max_new_tokens=14, cache_dtype="fp8")
    found = fusescope.generate(m, prompts(), there, **given)
    plain = fusescope.generate(m, prompts(), there, max_new_tokens=14)
    with monkeypatch.context() as patch:
        _rounded_alike(patch)
        expected = fusescope.generate(m, prompts(), there, **given)
    assert torch.equal(found, expected)
    whole = [0, 1, 3]  # a prompt that ends in padding goes on from the cache
    assert torch.equal(found[whole, :12], plain[whole, :12]), "the prompt is computed in the model's dtype"
    assert (found == plain).float().mean() > 0.5


@pytest.mark.parametrize("kind", ["llama", "mistral"])
def test_a_conversation_goes_on_over_the_fp8_cache(kind, monkeypatch):
    import torch

    from fusescope.models.run.decoder.layers import Layers

    computed, embed = [], Layers.embed
    monkeypatch.setattr(
        Layers, "embed", lambda self, ids, *a: (computed.append(ids.shape[1]), embed(self, ids, *a))[1]
    )
    m, kept = model(kind, **WINDOWS.get(kind, {})), fusescope.KVCache()
    first = fusescope.generate(m, prompts(), max_new_tokens=6, cache=kept, cache_dtype="fp8")
    scales = [dict(layer) for layer in kept.held.cache.scales]
    assert all(k.dtype == torch.float8_e4m3fn for k in kept.held.cache.keys)
    turn = torch.cat((first, prompts(4, 3)), 1)
    computed.clear()
    again = fusescope.generate(m, turn, max_new_tokens=5, cache=kept, cache_dtype="fp8")
    assert computed == [4, 1, 1, 1, 1] and torch.equal(again[:, :20], turn)
    for before, after in zip(scales, kept.held.cache.scales):
        assert all(before[name] is after[name] for name in ("k_scale", "v_scale"))
    fresh = fusescope.generate(m, turn, max_new_tokens=5, cache_dtype="fp8")
    assert (again == fresh).float().mean() > 0.8
    computed.clear()
    plain = fusescope.generate(m, turn, max_new_tokens=5, cache=kept)
    assert computed[0] == 20 and torch.equal(plain, fusescope.generate(m, turn, max_new_tokens=5))


def test_scales_are_powers_of_2_with_room_and_padding_does_not_count():
    import torch

    from fusescope.models.run.decoder.cache import Cache
    from fusescope.ops import fp8

    most = torch.tensor([0.001, 1.0, 3.5, 224.0, 448.0, 5e4, torch.inf])
    scales = fp8.roomy(most)
    assert torch.equal(torch.frexp(scales).mantissa, torch.full((7,), 0.5))
    room = most[:-1] / scales[:-1]
    assert bool(((room > 448 / 4 - 1e-3) & (room <= 448 / 2)).all()) and scales[-1] == 1
    made = Cache((None,), (2, 1, 8), torch.float32, "cpu", True)
    made.reserve(3, 3)
    keys = torch.ones(2, 3, 1, 8)
    keys[0, 2] = 100.0  # padding: of the first sequence two tokens are there
    made.fill(0, keys, keys, None, torch.tensor([2, 3]))
    assert made.scales[0]["k_scale"].tolist() == [2.0**-7]
    assert made.wide(0)[0][1].eq(1).all() and made.wide(0)[0][0, 0, :2].eq(1).all()


def test_what_is_refused():
    with pytest.raises(ValueError, match=r"None, for the dtype of the model, or \"fp8\", not 'int8'"):
        fusescope.generate(model("llama"), prompts(), max_new_tokens=2, cache_dtype="int8")


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["gpt2", "llama", "mistral"])
def test_on_a_gpu_by_graphs_over_a_cache_that_grows(kind, monkeypatch):
    import copy

    import torch

    from fusescope.models.run.decoder import cache

    monkeypatch.setattr(cache, "BUCKET", 8)
    m = copy.deepcopy(model(kind, **WINDOWS.get(kind, {}))).half().to("cuda")
    given = dict(max_new_tokens=14, cache_dtype="fp8")
    found = fusescope.generate(m, prompts().cuda(), **given)
    assert torch.equal(found, fusescope.generate(m, prompts().cuda(), **given))
    expected = fusescope.generate(model(kind, **WINDOWS.get(kind, {})), prompts(), **given)
    assert torch.equal(found[:, :12].cpu(), expected[:, :12])
    assert (found.cpu() == expected).float().mean() > 0.8


@pytest.mark.gpu
@pytest.mark.parametrize("more", [{"phase": "decode", "lengths": "9+17"}, {"phase": "generate", "new": 4}])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_mode_is_right_on_a_gpu(more, dtype):
    from fusescope.measure.model_subject import ModelCase, ModelSubject
    from tests.models.tiny_models import case

    subject = ModelSubject("llama-small")
    checked = ModelCase(subject, case("llama-small", **more), dtype, "cuda:0", 0)
    run = subject.make("fused-fp8-cache", checked.inputs)
    assert run.graph and checked.verify(run, run()).reason is None
    checked.renew()
    assert checked.verify(run).reason is None
