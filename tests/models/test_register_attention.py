"""attn_implementation="fusescope" in every architecture that honours the registry: used, and equal to Hugging
Face's own."""

import pytest

from fusescope.core.errors import Unsupported
from fusescope.models import register_attention
from fusescope.models.hugging_face.attend import forward

SIZES = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, vocab_size=99)
GROUPED = SIZES | dict(num_key_value_heads=1, bos_token_id=1, eos_token_id=2, pad_token_id=0)
TEXT = {
    "Bert": SIZES,
    "DistilBert": dict(dim=64, n_layers=2, n_heads=2, hidden_dim=64, vocab_size=99),
    "Roberta": SIZES,
    "GPT2": dict(n_embd=64, n_layer=2, n_head=2, vocab_size=99),
    "Llama": GROUPED,
    "Qwen2": GROUPED,
    "Mistral": GROUPED | dict(sliding_window=4),
}
GENERATES = {
    "GPT2": "GPT2LMHeadModel",
    "Llama": "LlamaForCausalLM",
    "Qwen2": "Qwen2ForCausalLM",
    "Mistral": "MistralForCausalLM",
}


@pytest.fixture(scope="module")
def calls():
    import torch

    from fusescope import kernels

    kernels.load("cpu")
    torch.manual_seed(0)
    return register_attention()


def _pair(kind, settings, suffix="Model"):
    """The same random model with sdpa and with ours."""
    import torch
    import transformers

    found = []
    for attention in ("sdpa", "fusescope"):
        torch.manual_seed(1)
        config = getattr(transformers, f"{kind}Config")(**settings)
        if hasattr(config, "initializer_range"):
            config.initializer_range = 0.2  # scores that matter
        found.append(
            getattr(transformers, suffix if suffix != "Model" else f"{kind}Model")
            ._from_config(config, attn_implementation=attention)
            .eval()
        )
    return found


@pytest.mark.parametrize("kind", TEXT)
def test_padded_batches_equal_sdpa_and_the_counter_proves_the_use(kind, calls):
    import torch

    theirs, ours = _pair(kind, TEXT[kind])
    ids = torch.randint(3, 99, (2, 19))
    left = kind in GENERATES
    there = torch.ones(2, 19, dtype=torch.long)
    there[0, slice(0, 4) if left else slice(12, 19)] = 0
    for mask in (None, there):
        before = calls.count
        with torch.no_grad():
            a, b = (m(input_ids=ids, attention_mask=mask).last_hidden_state for m in (theirs, ours))
        assert calls.count - before == 2, f"{kind} has two layers"
        keep = there.bool() if mask is not None else torch.ones(2, 19, dtype=torch.bool)
        assert (a - b)[keep].abs().max() < 2e-5


@pytest.mark.parametrize("kind", GENERATES)
def test_generation_with_a_padded_batch(kind, calls):
    import torch

    theirs, ours = _pair(kind, TEXT[kind], GENERATES[kind])
    ids = torch.randint(3, 99, (2, 18))
    there = torch.ones(2, 18, dtype=torch.long)
    there[0, :3] = 0
    how = dict(
        attention_mask=there,
        max_new_tokens=5,
        do_sample=False,
        pad_token_id=0,
        return_dict_in_generate=True,
        output_logits=True,
    )
    before = calls.count
    a, b = (m.generate(ids, **how) for m in (theirs, ours))
    assert calls.count - before == 2 * 5
    for x, y in zip(a.logits, b.logits):
        assert (x - y).abs().max() < 2e-4 * max(1.0, float(x.abs().max()))


def test_generation_over_a_static_cache(calls):
    import torch

    theirs, ours = _pair("Llama", TEXT["Llama"], GENERATES["Llama"])
    ids = torch.randint(3, 99, (2, 7))
    how = dict(
        max_new_tokens=4,
        do_sample=False,
        pad_token_id=0,
        cache_implementation="static",
        disable_compile=True,
        output_logits=True,
        return_dict_in_generate=True,
    )
    a, b = (m.generate(ids, **how) for m in (theirs, ours))
    for x, y in zip(a.logits, b.logits):
        assert (x - y).abs().max() < 2e-4 * max(1.0, float(x.abs().max()))


@pytest.mark.parametrize("kind", ["ViT", "CLIP"])
def test_images(kind, calls):
    import torch

    vision = dict(
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        image_size=16,
        patch_size=8,
    )
    if kind == "ViT":
        theirs, ours = _pair("ViT", vision)
    else:
        text = SIZES | dict(max_position_embeddings=16, bos_token_id=1, eos_token_id=2)
        theirs, ours = _pair("CLIP", dict(text_config=text, vision_config=vision, projection_dim=32))
    given = {"pixel_values": torch.randn(2, 3, 16, 16)}
    if kind == "CLIP":
        there = torch.ones(2, 9, dtype=torch.long)
        there[0, 6:] = 0
        given |= {"input_ids": torch.randint(3, 99, (2, 9)), "attention_mask": there}
    before = calls.count
    with torch.no_grad():
        a, b = (m(**given) for m in (theirs, ours))
    assert calls.count - before == (2 if kind == "ViT" else 4)
    pairs = (
        [(a.last_hidden_state, b.last_hidden_state)]
        if kind == "ViT"
        else [(a.image_embeds, b.image_embeds), (a.text_embeds, b.text_embeds)]
    )
    assert all((x - y).abs().max() < 2e-5 for x, y in pairs)


def test_t5_with_position_biases_and_padding(calls):
    import torch

    settings = dict(
        d_model=64,
        d_kv=32,
        d_ff=64,
        num_layers=2,
        num_heads=2,
        vocab_size=99,
        decoder_start_token_id=0,
        pad_token_id=0,
        eos_token_id=1,
    )
    theirs, ours = _pair("T5", settings)
    ids, there = torch.randint(3, 99, (2, 9)), torch.ones(2, 9, dtype=torch.long)
    there[0, 5:] = 0
    before = calls.count
    with torch.no_grad():
        a, b = (
            m(input_ids=ids, attention_mask=there, decoder_input_ids=ids[:, :6]).last_hidden_state
            for m in (theirs, ours)
        )
    assert calls.count - before == 6  # two layers each: encoder, decoder, decoder over the encoder
    assert (a - b).abs().max() < 2e-5
    theirs, ours = _pair("T5", settings, "T5ForConditionalGeneration")
    before = calls.count
    a, b = (
        m.generate(ids, attention_mask=there, max_new_tokens=4, min_new_tokens=4, do_sample=False)
        for m in (theirs, ours)
    )
    assert calls.count > before and a.shape == b.shape


def test_whisper_and_its_generation(calls):
    import torch

    settings = dict(
        d_model=64,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        vocab_size=99,
        num_mel_bins=8,
        max_source_positions=10,
        max_target_positions=16,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    theirs, ours = _pair("Whisper", settings)
    sound, ids = torch.randn(2, 8, 20), torch.randint(3, 99, (2, 6))
    before = calls.count
    with torch.no_grad():
        a, b = (m(input_features=sound, decoder_input_ids=ids).last_hidden_state for m in (theirs, ours))
    assert calls.count - before == 6
    assert (a - b).abs().max() < 2e-5


def test_a_prepared_plan_takes_the_masks_place(calls):
    import torch

    from fusescope import masks
    from fusescope.models.hugging_face.model_masks import masked
    from fusescope.ops.attention import prepare

    theirs, ours = _pair("Bert", TEXT["Bert"])
    ids, mask = torch.randint(3, 99, (2, 12)), masks.load("sliding_window", left=2, right=1)
    keep = torch.from_numpy(mask.dense(12, 12))[None, None]
    with torch.no_grad():
        a = theirs(input_ids=ids, attention_mask=keep).last_hidden_state
        with masked(prepare(mask, 12, 12)):
            b = ours(input_ids=ids).last_hidden_state
        c = ours(input_ids=ids, attention_mask=keep).last_hidden_state
        d = ours(
            input_ids=ids, attention_mask=torch.zeros(1, 1, 12, 12).masked_fill(~keep, -1e9)
        ).last_hidden_state
    assert max((a - x).abs().max() for x in (b, c, d)) < 2e-5


def test_a_mask_that_changes_in_place_is_not_remembered(calls):
    import torch

    _, ours = _pair("Bert", TEXT["Bert"])
    ids, keep = torch.randint(3, 99, (1, 20)), torch.ones(1, 1, 20, 20, dtype=torch.bool)
    with torch.no_grad():
        a = ours(input_ids=ids, attention_mask=keep).last_hidden_state
        keep[..., 3:] = False
        b = ours(input_ids=ids, attention_mask=keep).last_hidden_state
        c = ours(input_ids=ids, attention_mask=keep.clone()).last_hidden_state
    assert (a - b).abs().max() > 1e-3 and torch.equal(b, c)


@pytest.mark.parametrize("kind", ["Bert", "Mistral"])
def test_a_padding_mask_under_capture(kind, calls, monkeypatch):
    """The lists are built without reading anything back (fake tensors have no values to read), once a
    forward, and for no other one."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from fusescope.models.hugging_face import model_masks
    from fusescope.ops.attention.plan import under_capture

    theirs, ours = _pair(kind, TEXT[kind] | dict(sliding_window=70))
    ids, there = torch.randint(3, 99, (2, 130)), torch.ones(2, 130, dtype=torch.long)
    there[0, 67:] = 0
    made, plan = [], under_capture.plan
    monkeypatch.setattr(model_masks, "capturing", lambda *_: True)
    monkeypatch.setattr(under_capture, "plan", lambda *given: made.append(given) or plan(*given))
    with torch.no_grad():
        a, b = (m(input_ids=ids, attention_mask=there).last_hidden_state for m in (theirs, ours))
        own = torch.ones(
            2, 1, 130, 130, dtype=torch.bool
        )  # of the caller's: it may outlive the graph, its lists may not
        ours(input_ids=ids, attention_mask=own)
    assert (a - b)[there.bool()].abs().max() < 2e-5
    assert len(made) == 1 + 1
    with FakeTensorMode():
        assert plan(torch.ones(2, 1, 130, 130, dtype=torch.bool), 130, 130).bitmaps.shape == (2 * 9, 64)


@pytest.mark.parametrize("shape", [(1, 1, 64, 64), (2, 1, 130, 70), (2, 3, 70, 200)])
def test_lists_that_are_not_read_are_those_of_a_plan(shape):
    import dataclasses

    import torch

    from fusescope.ops.attention.plan import under_capture

    mask = torch.rand(shape, generator=torch.Generator().manual_seed(3)) < 0.3
    mask[..., 64:] &= False
    mask[:, :, :64, :64] |= True
    for given in (mask, mask[:1, :1, :1], mask | True):
        plan = under_capture.plan(given, *shape[2:])
        count = int(plan.row_ptr[-1])
        cut = dataclasses.replace(plan, tile_index=plan.tile_index[:count], tile_code=plan.tile_code[:count])
        assert torch.equal(cut.dense(), given.expand(*given.shape[:2], *shape[2:]))


@pytest.mark.slow
def test_few_queries_compiled_with_a_mask(calls):
    """Lists of 64 x 64 tiles would cost more than they save: the mask is added to the scores."""
    import torch

    _, ours = _pair("Bert", TEXT["Bert"] | dict(num_hidden_layers=1))
    ids, keep = torch.randint(3, 99, (2, 9)), torch.ones(2, 1, 9, 9, dtype=torch.bool)
    keep[0, ..., 5:] = False
    with torch.no_grad():
        a = ours(input_ids=ids, attention_mask=keep).last_hidden_state
        torch._dynamo.reset()
        b = torch.compile(ours, fullgraph=True, dynamic=False, backend="eager")(
            input_ids=ids, attention_mask=keep
        ).last_hidden_state
    assert (a - b).abs().max() < 2e-5


@pytest.mark.slow
def test_causal_while_compiling(calls):
    import torch

    _, ours = _pair("GPT2", TEXT["GPT2"] | dict(n_layer=1))
    ids = torch.randint(3, 99, (2, 9))
    with torch.no_grad():
        a = ours(input_ids=ids, use_cache=False).last_hidden_state
        torch._dynamo.reset()
        b = torch.compile(ours, fullgraph=True, dynamic=False, backend="eager")(
            input_ids=ids, use_cache=False
        ).last_hidden_state
    assert (a - b).abs().max() < 2e-5


@pytest.mark.parametrize("queries", (1, 20))
def test_soft_caps_and_sinks(queries, calls):
    """As Gemma 2 and gpt-oss give them, whose classes are refused for what they declare; in decoding too."""
    import torch

    q, k = torch.randn(1, 2, queries, 32), torch.randn(1, 2, 20, 32)
    sinks = torch.tensor([0.5, 2.0])
    out, _ = forward(torch.nn.Module(), q, k, k, None, s_aux=sinks, softcap=0.7, is_causal=True)
    later = torch.ones(queries, 20, dtype=torch.bool).triu(1 + 20 - queries)
    scores = (0.7 * torch.tanh(q @ k.transpose(2, 3) / 32**0.5 / 0.7)).masked_fill(later, -torch.inf)
    scores = torch.cat([scores, sinks[:, None, None].expand(1, 2, queries, 1)], 3)
    assert (out.transpose(1, 2) - scores.softmax(-1)[..., :20] @ k).abs().max() < 1e-5


def test_what_it_cannot_do_is_said(calls):
    import torch

    from fusescope.models.hugging_face.model_masks import masked

    module, q = torch.nn.Module(), torch.randn(1, 2, 4, 32)
    with pytest.raises(Unsupported, match="keys chosen by an indexer"):
        forward(module, q, q, q, None, indices=q)
    with masked(torch.ones(1, dtype=torch.int32)):
        with pytest.raises(Unsupported, match="by lengths, which its position_bias excludes"):
            forward(module, q, q, q, None, position_bias=q.new_zeros(1, 1, 1, 4))
        with pytest.raises(Unsupported, match="a mask of its own besides, whose window is not known"):
            forward(module, q, q, q, torch.ones(1, 1, 4, 4, dtype=torch.bool))
    with pytest.raises(Unsupported, match="without dropout"):
        forward(module.train(), q, q, q, None, dropout=0.1)
