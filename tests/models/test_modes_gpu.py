"""On a GPU: compiled ways, caches of different lengths, and padding masks in somebody's own CUDA graph."""

import pytest

from fusescope import models
from fusescope.core.errors import Unsupported
from fusescope.models.inspect import backends, parts
from fusescope.models.run import build, modes, tolerance

pytestmark = pytest.mark.gpu
SIZES = {"layers": 2, "heads": 4, "head_dim": 64, "batch": 2, "seq": 128}
CASES = [
    ("bert-base", {}),
    ("bert-base", {"lengths": "77+128"}),
    ("bert-base", {"mask": "bigbird"}),
    ("vit-base", {"seq": 65}),
    ("gpt2", {"phase": "prefill"}),
    ("llama-small", {"phase": "decode", "lengths": "77+128"}),
]


def _wrong(model, inputs, out, ref) -> bool:
    there = tolerance.valid(inputs, out)
    out, ref = (out, ref) if there is None else (out[there], ref[there])
    error = float((out.double() - ref).norm() / ref.norm())
    return not error <= tolerance.allowed_norm(model.config.layers, model.dtype)


@pytest.mark.parametrize("way", ["compile-default", "compile-reduce-overhead", "compile-max-autotune"])
@pytest.mark.parametrize("number", range(len(CASES)))
def test_compiled_ways_are_right_keep_a_fused_attention_and_have_layer_parts(way, number):
    import torch

    name, asked = CASES[number]
    if way == "compile-max-autotune" and number:
        pytest.skip("its templates take a minute; one case is enough")
    torch._dynamo.reset()
    asked = models.validate(name, SIZES | asked)
    model = build.build(name, asked, "float16", "cuda:0")
    inputs = build.inputs(model, asked)
    run = modes.make(way, model, inputs)
    assert run.graph == (way != "compile-default"), (
        "inductor made no CUDA graph: a mutated input, or one on the CPU"
    )
    for seed in (0, 1):
        inputs["pixel_values" if "pixel_values" in inputs else "input_ids"].copy_(
            next(v for k, v in build.inputs(model, asked, seed).items() if k in ("pixel_values", "input_ids"))
        )
        assert not _wrong(model, inputs, run(), tolerance.reference(model, inputs)), (name, asked, seed)
    ran = backends.ran(run, "cuda:0")
    assert ran and "math" not in ran, ran
    try:
        found = parts.measure(way, model, inputs, run)
    except Unsupported as reason:
        assert "decode" in asked.get("phase", ""), reason  # products of one row may be written as sums
    else:
        assert all(found[p]["ms"] > 0 for p in ("embedding", "qkv", "attention", "output", "ffn", "norm"))


@pytest.mark.parametrize("way", ["eager", "sdpa", "sdpa-graph", "flex", "fusescope", "fusescope-graph"])
@pytest.mark.parametrize("name", ["gpt2", "llama-small"])
def test_decoding_over_caches_of_different_lengths(name, way):
    asked = models.validate(name, SIZES | {"batch": 4, "phase": "decode", "lengths": "1+40+77+128"})
    model = build.build(name, asked, "float16", "cuda:0")
    inputs = build.inputs(model, asked)
    out = modes.make(way, model, inputs)()
    assert not _wrong(model, inputs, out, tolerance.reference(model, inputs))


@pytest.mark.parametrize("kind", ["Bert", "Mistral"])
def test_a_captured_padding_mask_follows_its_values(kind):
    """A user's own graph of a padded batch: the lists of live tiles are built inside it, from the mask as it
    is at a replay."""
    import torch
    import transformers

    from fusescope import kernels
    from fusescope.models import register_attention

    kernels.load("cuda")
    calls = register_attention()
    settings = dict(
        hidden_size=256, num_hidden_layers=2, num_attention_heads=4, intermediate_size=256, vocab_size=99
    )
    if kind == "Mistral":
        settings |= dict(num_key_value_heads=2, sliding_window=70)
    made = []
    for attention in ("sdpa", "fusescope"):
        torch.manual_seed(1)
        config = getattr(transformers, f"{kind}Config")(**settings)
        config.initializer_range = 0.1
        made.append(
            getattr(transformers, f"{kind}Model")
            ._from_config(config, attn_implementation=attention)
            .eval()
            .half()
            .cuda()
        )
    theirs, ours = made
    keywords = {} if kind == "Bert" else {"use_cache": False}
    ids, there = (
        torch.randint(3, 99, (2, 200), device="cuda"),
        torch.ones(2, 200, dtype=torch.long, device="cuda"),
    )
    there[0, 90:] = 0
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.no_grad():
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                ours(input_ids=ids, attention_mask=there, **keywords)
        torch.cuda.synchronize()
        before = calls.count
        with torch.cuda.graph(graph, stream=stream):
            out = ours(input_ids=ids, attention_mask=there, **keywords).last_hidden_state
        assert calls.count - before == 2
        for first, second in ((90, 200), (200, 33)):
            there.fill_(1)
            there[0, first:] = 0
            there[1, second:] = 0
            graph.replay()
            torch.cuda.synchronize()
            expected = theirs(input_ids=ids, attention_mask=there, **keywords).last_hidden_state
            assert (out - expected)[there.bool()].abs().max() < 2e-2
